"""Where our own calls go: to the address named, whatever the environment or an answer says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask, Response, redirect
from werkzeug.wrappers import Response as Answer

from agent_server.llm import LLMClient, LLMSettings
from agent_server.settings import AgentServerSettings
from launch.doctor.servers import server_checks
from launch.local import is_ready
from launch.process_spec import ProcessSpec
from llm_servers.server import LLMServer
from rollyard.errors import InvalidMessage, RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    AgentServerStatus,
    FleetStatus,
    LLMNode,
)
from serving.api import reply
from serving.bind import Bind
from tests.serving_threads import served

Call = Callable[[str], object]
TOKEN = "the-token-of-the-services"


def by_peer(url: str) -> object:
    return Peer(url, name="service", token=TOKEN).post("/livez", None, Accepted)


def by_agent_server(url: str) -> object:
    return LLMClient(LLMSettings(servers=(url,))).why_not_ready()


def by_llm_node(url: str) -> object:
    return LLMServer(url).healthy()


def by_llm_node_that_posts(url: str) -> None:
    LLMServer(url).pause()


def by_launcher(url: str) -> object:
    port = int(url.rpartition(":")[2])
    spec = ProcessSpec(
        kind="tests",
        name="x",
        level=0,
        command=(),
        port=port,
        ready_path="/livez",
        ready_seconds=1.0,
    )
    return is_ready(spec)


def by_doctor(url: str) -> object:
    server = AgentServerStatus(server_id="a", url=url, slots=1, busy_slots=0, environments=())
    return server_checks(FleetStatus(runs=(), servers=(server,), llm_nodes=()))


CALLS = (
    by_peer,
    by_agent_server,
    by_llm_node,
    by_llm_node_that_posts,
    by_launcher,
    by_doctor,
)


class Stranger:
    """A service that nobody means to call, and the paths that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.app = Flask("stranger")
        self.app.add_url_rule("/", "root", self._answer, methods=["GET", "POST"])
        self.app.add_url_rule("/<path:path>", "any", self._answer, methods=["GET", "POST"])

    def _answer(self, path: str = "") -> Response:
        self.asked.append(path)
        return reply(Accepted())


@pytest.fixture
def stranger() -> Stranger:
    return Stranger()


@pytest.fixture
def stranger_url(stranger: Stranger) -> Iterator[str]:
    with served(stranger.app) as url:
        yield url


def attempt(call: Call, url: str) -> None:
    """What comes of it does not matter here, only who was asked."""
    try:
        call(url)
    except RollyardError:
        return


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("call", CALLS)
def test_no_redirect_is_followed(
    call: Call, status: int, stranger: Stranger, stranger_url: str
) -> None:
    app = Flask("redirecting")

    @app.route("/<path:path>", methods=["GET", "POST"])
    def elsewhere(path: str) -> Answer:
        return redirect(f"{stranger_url}/{path}", code=status)

    with served(app) as url:
        attempt(call, url)
    assert stranger.asked == []


@pytest.mark.parametrize("call", CALLS)
def test_no_proxy_of_the_environment_is_used(
    call: Call, stranger: Stranger, stranger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, stranger_url)
    meant = Stranger()
    with served(meant.app) as url:
        attempt(call, url)
    assert stranger.asked == []
    assert meant.asked


def test_a_service_that_points_elsewhere_is_named_with_what_to_do() -> None:
    app = Flask("redirecting")

    @app.post("/livez")
    def elsewhere() -> Answer:
        return redirect("http://127.0.0.1:9/livez", code=308)

    with (
        served(app) as url,
        pytest.raises(Unavailable, match="give the URL of the service itself"),
    ):
        by_peer(url)


@pytest.mark.parametrize("status", [302, 308])
def test_a_redirect_is_no_sign_of_health(status: int) -> None:
    app = Flask("redirecting")

    @app.get("/<path:path>")
    def elsewhere(path: str) -> Answer:
        return redirect(f"http://127.0.0.1:9/{path}", code=status)

    with served(app) as url:
        assert not LLMServer(url).healthy()
        assert not by_launcher(url)
        assert f"answers {status} to /health" in str(by_agent_server(url))


BAD_URLS = (
    "ftp://127.0.0.1:8006",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379",
    "127.0.0.1:8006",
    "httpx://127.0.0.1:8006",
    "http://",
    "http://user:password@127.0.0.1:8006",
    "http://127.0.0.1:8006?x=1",
)


@pytest.mark.parametrize("url", BAD_URLS)
def test_only_the_plain_url_of_a_service_can_be_registered(url: str) -> None:
    with pytest.raises(InvalidMessage, match="is not the URL of a service"):
        AgentServer(server_id="a", url=url, slots=1, environments=())
    with pytest.raises(InvalidMessage, match="is not the URL of a service"):
        LLMNode(node_id="n", url=url, servers=(), model="m")


@pytest.mark.parametrize("url", BAD_URLS)
def test_an_agent_server_is_given_plain_urls_of_its_services(url: str) -> None:
    good, bind, model = "http://127.0.0.1:8000", Bind(port=8006), Path("model")
    for orchestrator, llm_server in ((url, good), (good, url)):
        with pytest.raises(InvalidMessage, match="is not the URL of a service"):
            AgentServerSettings(
                server_id="a",
                bind=bind,
                orchestrator=orchestrator,
                llm_servers=(llm_server,),
                model=model,
            )
