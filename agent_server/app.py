"""The agent server's HTTP API. Routes parse, call and answer; the work is the runner's."""

from collections.abc import Callable

from flask import Flask, Response

from agent_server.metrics import Metrics
from agent_server.runner import JobRunner
from rollyard.errors import Unavailable
from rollyard.messages import Accepted, Assignment, Lease
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import allow, public
from serving.api import new_app, read, reply


def create_app(
    server_id: str,
    runner: JobRunner,
    metrics: Metrics,
    why_not_ready: Callable[[], str],
    tokens: Tokens = NO_TOKENS,
) -> Flask:
    """`why_not_ready` is empty when Jobs can run."""
    app = new_app(f"agent server {server_id}", tokens)

    @app.post("/jobs")
    @allow(Role.WORKER)
    def accept_job() -> Response:
        return reply(runner.accept_all(read(list[Assignment])), 202)

    @app.post("/cancel")
    @allow(Role.WORKER)
    def cancel_job() -> Response:
        for lease in read(list[Lease]):
            runner.cancel(lease)
        return reply(Accepted())

    @app.get("/status")
    @allow(Role.READ)
    def status() -> Response:
        return reply(runner.status(server_id))

    @app.get("/readyz")
    @public
    def readyz() -> Response:
        if reason := why_not_ready():
            raise Unavailable(f"not ready: {reason}")
        return reply(Accepted())

    @app.get("/metrics")
    @allow(Role.READ)
    def prometheus() -> Response:
        return Response(metrics.text(), mimetype="text/plain")

    return app
