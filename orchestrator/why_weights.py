"""Why the LLM servers do not serve what was published, in one true sentence. Until they do, nothing
is leased, so that every Run waits for it.
"""

from datetime import UTC, datetime

from orchestrator.queues.published import Serving
from rollyard.messages import LLMNode

SILENT_SECONDS = 10.0
"""Longer than an LLM node leaves between two heartbeats, also on a busy machine."""


def why_not_served(serving: Serving) -> str:
    """Of the first LLM node that lags behind; empty if none does."""
    for node in serving.nodes:
        if node.node_id in serving.unready:
            return _why_node(node, serving)
    return ""


def _why_node(node: LLMNode, serving: Serving) -> str:
    version = serving.published.version if serving.published else 0
    silent = serving.silent_seconds.get(node.node_id, 0.0)
    since = datetime.fromtimestamp(serving.unready[node.node_id], UTC).strftime("%H:%M:%S UTC")
    if silent > SILENT_SECONDS:
        return (
            f"LLM node {node.node_id!r} has not been heard of for {silent:.0f} s, and its servers "
            f"are to serve weight version {version}; start it again"
        )
    lags = f"the LLM servers of node {node.node_id!r} {_serve(node)}"
    if node.trouble:
        return f"{lags}, and version {version} cannot be put on them: {node.trouble}"
    return f"{lags}; version {version} is being put on them since {since}"


def _serve(node: LLMNode) -> str:
    if node.serves is None:
        return "do not all serve one weight version yet"
    return f"serve weight version {node.serves}"
