"""The control service's routes: weights, scores, and the state of the LLM servers."""

from flask import Flask

from llm_servers.metrics import render_metrics
from llm_servers.node import Node
from llm_servers.standing import NodeState, why_silent
from rollyard.errors import Conflict, InvalidMessage, Unavailable
from rollyard.messages import ScoreRequest, Scores, WeightReport, WeightUpdate, WeightVersion
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import EVERYONE, allow
from serving.routes import Routes


def create_app(node: Node, tokens: Tokens = NO_TOKENS) -> Flask:
    routes = Routes("llm_servers", tokens)

    @routes.post("/weights", allow(Role.WORKER), raises=(InvalidMessage, Conflict, Unavailable))
    def update_weights(update: WeightUpdate) -> WeightReport:
        """Load new weights on this node's LLM servers."""
        return node.update_weights(update)

    @routes.get("/weights", allow(Role.WORKER, Role.READ), raises=(Unavailable,))
    def weight_version() -> WeightVersion:
        """The weight version that the LLM servers should serve, as far as this node knows."""
        return node.weight_version()

    @routes.post("/score", allow(Role.WORKER), raises=(InvalidMessage, Unavailable))
    def score(request: ScoreRequest) -> Scores:
        """The logprobs that every LLM server gives to these tokens."""
        return node.score(request)

    @routes.get("/servers", allow(Role.READ), raises=(Unavailable,))
    def servers() -> NodeState:
        """Health, weight version and pause of every LLM server."""
        return node.state()

    @routes.get("/metrics", allow(Role.READ))
    def metrics() -> str:
        """Metrics for Prometheus."""
        return render_metrics(node.state())

    @routes.get("/readyz", EVERYONE, raises=(Unavailable,))
    def readyz() -> str:
        """Whether weights can be updated and tokens scored; known trouble is named even then."""
        if node.waiting_for:
            trouble = f": {node.trouble}" if node.trouble else ""
            raise Unavailable(f"not ready: waiting for {node.waiting_for}{trouble}")
        if silent := why_silent(node.state().servers):
            raise Unavailable(f"not ready: {silent}")
        return f"ok, but {node.trouble}\n" if node.trouble else "ok\n"

    return routes.app
