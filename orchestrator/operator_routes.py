"""The part of the HTTP API for people: what there is, why it waits, and what to do about it."""

from flask import Flask, Response, request

from orchestrator.metrics import render_metrics
from orchestrator.service import Orchestrator
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import Accepted, DeadJobs, JobList, Requeued, ServerList
from rollyard.tokens import Role
from serving.access import allow, public
from serving.api import reply


def add_operator_routes(app: Flask, orchestrator: Orchestrator) -> None:
    add_status_routes(app, orchestrator)
    add_question_routes(app, orchestrator)
    add_order_routes(app, orchestrator)


def add_status_routes(app: Flask, orchestrator: Orchestrator) -> None:
    @app.get("/status")
    @allow(Role.SUBMIT, Role.READ)
    def status() -> Response:
        return reply(orchestrator.status())

    @app.get("/occupancy")
    @allow(Role.SUBMIT, Role.READ)
    def occupancy() -> Response:
        return reply(orchestrator.occupancy.read())

    @app.get("/metrics")
    @allow(Role.READ)
    def metrics() -> Response:
        return Response(render_metrics(orchestrator.status()), mimetype="text/plain")

    @app.get("/readyz")
    @public
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
    @allow(Role.SUBMIT, Role.READ)
    def jobs() -> Response:
        found = operators.jobs(request.args.get("run"), request.args.get("state"), _limit())
        return reply(JobList(jobs=found))

    @app.get("/jobs/<path:job_id>")
    @allow(Role.SUBMIT, Role.READ)
    def job(job_id: str) -> Response:
        return reply(orchestrator.queues.job(job_id))

    @app.get("/dead")
    @allow(Role.SUBMIT, Role.READ)
    def dead() -> Response:
        return reply(DeadJobs(jobs=operators.dead(request.args.get("run"))))

    @app.get("/servers")
    @allow(Role.SUBMIT, Role.READ)
    def servers() -> Response:
        return reply(ServerList(servers=operators.servers()))

    @app.get("/checkup")
    @allow(Role.READ)
    def checkup() -> Response:
        return reply(operators.checkup())

    @app.get("/why/<path:name>")
    @allow(Role.SUBMIT, Role.READ)
    def why(name: str) -> Response:
        return reply(operators.why(name))


def add_order_routes(app: Flask, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators

    @app.post("/jobs/<path:job_id>/cancel")
    @allow(Role.ADMIN)
    def cancel(job_id: str) -> Response:
        operators.cancel(job_id)
        return reply(Accepted(), 202)

    @app.post("/jobs/<path:job_id>/requeue")
    @allow(Role.ADMIN)
    def requeue(job_id: str) -> Response:
        return reply(Requeued(group_id=operators.requeue(job_id)), 202)

    @app.post("/servers/<server_id>/drain")
    @allow(Role.ADMIN)
    def drain(server_id: str) -> Response:
        orchestrator.queues.drain(server_id)
        return reply(Accepted(), 202)


def _limit() -> int:
    text = request.args.get("limit", "100")
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise InvalidMessage(f"limit must be a number, got {text!r}")
    return int(text)
