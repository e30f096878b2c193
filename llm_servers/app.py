"""The control service's routes: weights, scores, and the state of the LLM servers."""

from flask import Flask, Response

from llm_servers.node import Node
from rollyard.errors import Unavailable
from rollyard.messages import ScoreRequest, WeightUpdate
from serving.api import new_app, read, reply


def create_app(node: Node) -> Flask:
    app = new_app("llm_servers")

    @app.post("/weights")
    def update_weights() -> Response:
        return reply(node.update_weights(read(WeightUpdate)))

    @app.get("/weights")
    def weight_version() -> Response:
        return reply(node.weight_version())

    @app.post("/score")
    def score() -> Response:
        return reply(node.score(read(ScoreRequest)))

    @app.get("/servers")
    def servers() -> Response:
        return reply(node.state())

    @app.get("/readyz")
    def readyz() -> Response:
        if node.waiting_for:
            raise Unavailable(f"not ready: waiting for {node.waiting_for}")
        return Response("ok\n", mimetype="text/plain")

    return app
