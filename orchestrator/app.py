"""The orchestrator's HTTP API: parse, call, answer."""

from flask import Flask, Response, request

from orchestrator.operator_routes import add_operator_routes
from orchestrator.service import Orchestrator
from rollyard.messages import (
    Accepted,
    AgentServer,
    BatchRequest,
    Heartbeat,
    LLMNode,
    Prompt,
    Result,
    RunSettings,
    ScoreRequest,
    WeightUpdate,
)
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import allow
from serving.api import new_app, read, reply, wait_seconds


def create_app(orchestrator: Orchestrator, tokens: Tokens = NO_TOKENS) -> Flask:
    app = new_app("orchestrator", tokens)
    add_trainer_routes(app, orchestrator)
    add_weight_routes(app, orchestrator)
    add_server_routes(app, orchestrator)
    add_operator_routes(app, orchestrator)
    return app


def add_trainer_routes(app: Flask, orchestrator: Orchestrator) -> None:
    trainers = orchestrator.trainers

    @app.post("/runs")
    @allow(Role.SUBMIT)
    def create_run() -> Response:
        return reply(trainers.create(read(RunSettings)), 201)

    @app.get("/runs/<run_id>")
    @allow(Role.SUBMIT, Role.READ)
    def run_status(run_id: str) -> Response:
        return reply(trainers.wait(run_id, wait_seconds()))

    @app.post("/runs/<run_id>/prompts")
    @allow(Role.SUBMIT)
    def feed(run_id: str) -> Response:
        trainers.feed(run_id, read(list[Prompt]))
        return reply(Accepted(), 202)

    @app.post("/runs/<run_id>/batches")
    @allow(Role.SUBMIT)
    def request_batch(run_id: str) -> Response:
        return reply(trainers.request(run_id, read(BatchRequest)), 202)

    @app.get("/runs/<run_id>/batches/<batch_id>")
    @allow(Role.SUBMIT)
    def fetch_batch(run_id: str, batch_id: str) -> Response:
        return reply(trainers.fetch(run_id, batch_id))

    @app.post("/runs/<run_id>/batches/<batch_id>/ack")
    @allow(Role.SUBMIT)
    def acknowledge_batch(run_id: str, batch_id: str) -> Response:
        trainers.acknowledge(run_id, batch_id)
        return reply(Accepted())

    @app.post("/runs/<run_id>/close")
    @allow(Role.SUBMIT)
    def close_run(run_id: str) -> Response:
        return reply(trainers.close(run_id))


def add_weight_routes(app: Flask, orchestrator: Orchestrator) -> None:
    @app.post("/weights")
    @allow(Role.SUBMIT)
    def update_weights() -> Response:
        return reply(orchestrator.llm_nodes.update(read(WeightUpdate)))

    @app.get("/weights")
    @allow(Role.SUBMIT, Role.READ)
    def weight_version() -> Response:
        return reply(orchestrator.llm_nodes.version())

    @app.post("/score")
    @allow(Role.SUBMIT)
    def score() -> Response:
        return reply(orchestrator.llm_nodes.score(read(ScoreRequest)))


def add_server_routes(app: Flask, orchestrator: Orchestrator) -> None:
    @app.post("/servers")
    @allow(Role.WORKER)
    def register() -> Response:
        orchestrator.register(read(AgentServer))
        return reply(Accepted(), 201)

    @app.post("/servers/leave")
    @allow(Role.WORKER)
    def leave() -> Response:
        orchestrator.queues.leave(read(Heartbeat).server_id)
        return reply(Accepted())

    @app.post("/heartbeats")
    @allow(Role.WORKER)
    def heartbeat() -> Response:
        return reply(orchestrator.queues.heartbeat(read(Heartbeat)))

    @app.post("/results")
    @allow(Role.WORKER)
    def report() -> Response:
        # A server that asks for more is given its Slots' next Jobs in the same round trip.
        return reply(orchestrator.report(read(list[Result]), more="more" in request.args))

    @app.post("/llm-nodes")
    @allow(Role.WORKER)
    def register_llm_node() -> Response:
        orchestrator.queues.register_llm_node(read(LLMNode))
        return reply(Accepted(), 201)
