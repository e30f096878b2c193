"""The control service's routes: weights, scores, and the state of the LLM servers."""

from flask import Flask, Response

from llm_servers.node import Node
from rollyard.errors import Unavailable
from rollyard.messages import ScoreRequest, WeightUpdate
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import allow, public
from serving.api import new_app, read, reply


def create_app(node: Node, tokens: Tokens = NO_TOKENS) -> Flask:
    app = new_app("llm_servers", tokens)

    @app.post("/weights")
    @allow(Role.WORKER)
    def update_weights() -> Response:
        return reply(node.update_weights(read(WeightUpdate)))

    @app.get("/weights")
    @allow(Role.WORKER, Role.READ)
    def weight_version() -> Response:
        return reply(node.weight_version())

    @app.post("/score")
    @allow(Role.WORKER)
    def score() -> Response:
        return reply(node.score(read(ScoreRequest)))

    @app.get("/servers")
    @allow(Role.READ)
    def servers() -> Response:
        return reply(node.state())

    @app.get("/readyz")
    @public
    def readyz() -> Response:
        if node.waiting_for:
            raise Unavailable(f"not ready: waiting for {node.waiting_for}")
        return Response("ok\n", mimetype="text/plain")

    return app
