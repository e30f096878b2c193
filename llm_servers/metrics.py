"""Prometheus metrics of an LLM node: health, pause and weight version of its servers."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from llm_servers.standing import NodeState


def render_metrics(state: NodeState) -> str:
    """The metrics as text. They are made anew for each scrape, so that none outlives its server."""
    registry = CollectorRegistry()
    ready = Gauge(
        "rollyard_llm_node_ready", "Weights can be updated and tokens scored", registry=registry
    )
    ready.set(not state.waiting_for)
    troubled = Gauge(
        "rollyard_llm_node_troubled",
        "The servers cannot serve what was published",
        registry=registry,
    )
    troubled.set(bool(state.trouble))
    healthy = Gauge("rollyard_llm_server_healthy", "It answers", ["server"], registry=registry)
    paused = Gauge(
        "rollyard_llm_server_paused", "It gives no tokens for now", ["server"], registry=registry
    )
    version = Gauge(
        "rollyard_llm_server_weight_version", "Of what it serves", ["server"], registry=registry
    )
    for server in state.servers:
        healthy.labels(server=server.url).set(server.healthy)
        paused.labels(server=server.url).set(server.paused)
        if server.version is not None:
            version.labels(server=server.url).set(server.version)
    return generate_latest(registry).decode()
