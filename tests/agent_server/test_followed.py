"""Which of the announced LLM servers an agent server follows."""

from collections.abc import Collection, Mapping

from flask import Flask, Response

from agent_server.followed import LLMFollower
from rollyard.http import Peer
from rollyard.messages import LLMNode, LLMNodeList
from serving.api import new_app, reply
from tests.serving_threads import served


def node(name: str, *, servers: int = 2, proxy: bool = True, digest: str = "ours") -> LLMNode:
    return LLMNode(
        node_id=name,
        url=f"http://{name}:8101",
        servers=tuple(f"http://127.0.0.1:{8102 + number}" for number in range(servers)),
        model="/model",
        digest=digest,
        proxy=f"http://{name}:8100" if proxy else "",
    )


def orchestrator(nodes: list[LLMNode]) -> Flask:
    app = new_app("orchestrator")

    @app.get("/llm-nodes")
    def present() -> Response:
        return reply(LLMNodeList(tuple(nodes)))

    return app


def test_proxies_of_our_model_are_followed_and_only_changes_are_told() -> None:
    told: list[tuple[Mapping[str, int], Collection[str]]] = []
    nodes = [node("a"), node("b", servers=8), node("c", proxy=False), node("d", digest="other")]
    with served(orchestrator(nodes)) as url:
        follower = LLMFollower(
            Peer(url, name="orchestrator"), "ours", lambda *all_of_them: told.append(all_of_them)
        )
        follower.look()
        follower.look()
        del nodes[0]
        follower.look()
    both = {"http://a:8100": 2, "http://b:8100": 8}
    assert told == [(both, set()), ({"http://b:8100": 8}, set())]


def test_llm_servers_of_a_trainer_are_followed_themselves() -> None:
    told: list[tuple[Mapping[str, int], Collection[str]]] = []
    servers = ("http://trainer:3000", "http://trainer:3001")
    own = LLMNode(node_id="trainer", url="", servers=servers, model="")
    with served(orchestrator([node("a"), own])) as url:
        follow = lambda *all_of_them: told.append(all_of_them)  # noqa: E731
        LLMFollower(Peer(url, name="orchestrator"), "ours", follow).look()
    assert told == [({"http://a:8100": 2}, set(servers))]
