"""The tables of `rollyard status`."""

from launch.status import listings
from rollyard.messages import FleetStatus, LLMNode, LLMServerState


def test_llm_servers_of_a_trainer_are_told_from_our_own() -> None:
    ours = LLMNode(node_id="gpu1", url="http://h:4", servers=("http://h:1",), model="/m")
    own = LLMNode(node_id="trainer", url="", servers=("http://t:1", "http://t:2"), model="")
    servers, *_ = listings(FleetStatus(runs=(), servers=(), llm_nodes=(ours, own)))
    assert servers.lines()[1:] == [
        "gpu1\thttp://h:4\t\t1 LLM servers, /m",
        "trainer\t\t\t2 LLM servers, which their trainer updates",
    ]


def test_a_server_that_lacks_the_published_weights_is_not_said_to_serve() -> None:
    states = (LLMServerState(url="http://h:1", healthy=True),)
    node = LLMNode(
        *("n", "http://h:4", ("http://h:1",), "/m"), trouble="no checkpoint", states=states
    )
    status = FleetStatus(runs=(), servers=(), llm_nodes=(node,))
    (weights,) = [each for each in listings(status) if each.title == "Weights"]
    assert weights.lines()[1:] == ["n\thttp://h:1\t-\theld back; no checkpoint"]


def test_it_is_told_which_llm_server_has_which_weights_and_why_one_lacks_them() -> None:
    states = (
        LLMServerState(url="http://h:1", healthy=True, version=7),
        LLMServerState(url="http://h:2", healthy=True, paused=True, version=6, trouble="no disk"),
        LLMServerState(url="http://h:3", healthy=False),
        LLMServerState(url="http://h:4", healthy=True, version=7, adapter="/steps/7"),
    )
    servers = tuple(state.url for state in states)
    node = LLMNode(node_id="n", url="http://h:4", servers=servers, model="/m", states=states)
    status = FleetStatus(runs=(), servers=(), llm_nodes=(node,))
    (weights,) = [each for each in listings(status) if each.title == "Weights"]
    assert weights.lines()[1:] == [
        "n\thttp://h:1\t7\tserves",
        "n\thttp://h:2\t6\tpaused; no disk",
        "n\thttp://h:3\t-\tno answer",
        "n\thttp://h:4\t7\tserves with adapter /steps/7",
    ]
