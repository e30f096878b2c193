"""Prometheus metrics of an LLM node: health, pause and weight version of its servers."""

from functools import partial

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from llm_servers.standing import NodeState


def render_metrics(state: NodeState) -> str:
    """The metrics as text, made anew for each scrape, so that none outlives its server."""
    registry = CollectorRegistry()
    gauge = partial(Gauge, registry=registry)
    ready = gauge("rollyard_llm_node_ready", "Weights can be updated and tokens scored")
    ready.set(not state.waiting_for)
    troubled = gauge("rollyard_llm_node_troubled", "The published weights cannot be served")
    troubled.set(bool(state.trouble))
    healthy = gauge("rollyard_llm_server_healthy", "The server answers", ["server"])
    paused = gauge("rollyard_llm_server_paused", "The server gives no tokens for now", ["server"])
    version = gauge("rollyard_llm_server_weight_version", "Version of its weights", ["server"])
    for server in state.servers:
        healthy.labels(server=server.url).set(server.healthy)
        paused.labels(server=server.url).set(server.paused)
        if server.version is not None:
            version.labels(server=server.url).set(server.version)
    return generate_latest(registry).decode()
