"""Prometheus sees how the LLM servers of a node do."""

from llm_servers.metrics import render_metrics
from llm_servers.standing import NodeState
from rollyard.messages import LLMServerState


def test_every_server_is_there_with_what_is_known_of_it() -> None:
    state = NodeState(
        node_id="node-0",
        waiting_for="",
        trouble="the checkpoint is gone",
        servers=(
            LLMServerState(url="http://a", healthy=True, paused=True, version=7),
            LLMServerState(url="http://b", healthy=False),
        ),
    )
    lines = render_metrics(state).splitlines()
    assert {line for line in lines if not line.startswith("#")} == {
        "rollyard_llm_node_ready 1.0",
        "rollyard_llm_node_troubled 1.0",
        'rollyard_llm_server_healthy{server="http://a"} 1.0',
        'rollyard_llm_server_healthy{server="http://b"} 0.0',
        'rollyard_llm_server_paused{server="http://a"} 1.0',
        'rollyard_llm_server_paused{server="http://b"} 0.0',
        'rollyard_llm_server_weight_version{server="http://a"} 7.0',
    }
