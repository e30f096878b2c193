"""Explanations of why free Slots get no Jobs: LLM servers lack the published weights, or those that
a Batch needs, or models differ.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from orchestrator.queues.runs import Run
from orchestrator.queues.weights import SILENT_SECONDS, Serving
from rollyard.messages import LLMNode


def why_run_is_not_leased(run: Run, serving: Serving) -> str:
    """The reason in weights or models why no Job of the Run is leased; empty if there is none."""
    everything = why_nothing_is_leased(serving)
    if everything:
        return everything
    other = why_another_model(run, serving)
    if other:
        return other
    least = run.state.min_weights(run.settings.max_staleness)
    if least > serving.version:
        return (
            f"its batch takes tokens of weight version {least} or newer, and version "
            f"{serving.version} was published last; publish version {least}"
        )
    return ""


def why_another_model(run: Run, serving: Serving) -> str:
    other = _others(run.model, serving.models)
    if not other:
        return ""
    return (
        f"run {run.settings.run_id!r} began with model {run.model}, and the LLM servers have model "
        f"{other}; start them with the model of before, or go on with another run_id"
    )


def why_server_gets_nothing(digest: str, serving: Serving) -> str:
    """The reason in weights or models why an agent server with this model gets no Jobs; empty if
    there is none."""
    everything = why_nothing_is_leased(serving)
    if everything:
        return everything
    other = _others(digest, serving.models)
    if other:
        return f"it has model {digest} and the LLM servers have {other}; give both one --model"
    return ""


def why_nothing_is_leased(serving: Serving) -> str:
    """The reason why no Job at all is leased: the first LLM node that lags behind, or different
    models; empty if there is none."""
    for node in serving.nodes:
        if node.node_id in serving.unready:
            return _why_node(node, serving)
    if len(serving.models) > 1:
        told = ", ".join(f"{node.node_id!r} has {node.digest}" for node in serving.nodes)
        return f"the LLM nodes have different models: {told}; give all of them one --model"
    return ""


def _others(digest: str, models: Iterable[str]) -> str:
    """A model that differs from `digest`; empty if none does, or if `digest` is not known."""
    return next((model for model in models if digest and model != digest), "")


def _why_node(node: LLMNode, serving: Serving) -> str:
    silent = serving.silent_seconds.get(node.node_id, 0.0)
    since = datetime.fromtimestamp(serving.unready[node.node_id], UTC).strftime("%H:%M:%S UTC")
    if silent > SILENT_SECONDS:
        return (
            f"LLM node {node.node_id!r} has not been heard of for {silent:.0f} s, and its servers "
            f"are to serve weight version {serving.version}; start it again, or give it up with "
            f"`rollyard dismiss {node.node_id}`"
        )
    lags = f"the LLM servers of node {node.node_id!r} {_serve(node)}"
    if node.trouble:
        return f"{lags}, and version {serving.version} cannot be put on them: {node.trouble}"
    return f"{lags}; version {serving.version} is being put on them since {since}"


def _serve(node: LLMNode) -> str:
    if node.serves is None:
        return "do not all serve one weight version yet"
    return f"serve weight version {node.serves}"
