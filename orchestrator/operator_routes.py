"""The part of the HTTP API for people: what there is, why it waits, and what to do about it."""

from flask import Flask, Response, request

from orchestrator.metrics import render_metrics
from orchestrator.service import Orchestrator
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import Accepted, DeadJobs, JobList, Requeued, ServerList
from serving.api import reply


def add_operator_routes(app: Flask, orchestrator: Orchestrator) -> None:
    add_status_routes(app, orchestrator)
    add_question_routes(app, orchestrator)
    add_order_routes(app, orchestrator)


def add_status_routes(app: Flask, orchestrator: Orchestrator) -> None:
    @app.get("/status")
    def status() -> Response:
        return reply(orchestrator.status())

    @app.get("/occupancy")
    def occupancy() -> Response:
        return reply(orchestrator.occupancy.read())

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(render_metrics(orchestrator.status()), mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        status = orchestrator.status()
        if not status.servers:
            raise Unavailable("no agent server has registered")
        if not status.llm_nodes:
            raise Unavailable("no LLM node has registered")
        return Response("ok\n", mimetype="text/plain")


def add_question_routes(app: Flask, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators

    @app.get("/jobs")
    def jobs() -> Response:
        found = operators.jobs(request.args.get("run"), request.args.get("state"), _limit())
        return reply(JobList(jobs=found))

    @app.get("/jobs/<path:job_id>")
    def job(job_id: str) -> Response:
        return reply(orchestrator.queues.job(job_id))

    @app.get("/dead")
    def dead() -> Response:
        return reply(DeadJobs(jobs=operators.dead(request.args.get("run"))))

    @app.get("/servers")
    def servers() -> Response:
        return reply(ServerList(servers=operators.servers()))

    @app.get("/checkup")
    def checkup() -> Response:
        return reply(operators.checkup())

    @app.get("/why/<path:name>")
    def why(name: str) -> Response:
        return reply(operators.why(name))


def add_order_routes(app: Flask, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators

    @app.post("/jobs/<path:job_id>/cancel")
    def cancel(job_id: str) -> Response:
        operators.cancel(job_id)
        return reply(Accepted(), 202)

    @app.post("/jobs/<path:job_id>/requeue")
    def requeue(job_id: str) -> Response:
        return reply(Requeued(group_id=operators.requeue(job_id)), 202)

    @app.post("/servers/<server_id>/drain")
    def drain(server_id: str) -> Response:
        orchestrator.queues.drain(server_id)
        return reply(Accepted(), 202)


def _limit() -> int:
    text = request.args.get("limit", "100")
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise InvalidMessage(f"limit must be a number, got {text!r}")
    return int(text)
