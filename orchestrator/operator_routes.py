"""The HTTP API for operators: status, questions, and orders."""

from orchestrator.metrics import render_metrics
from orchestrator.own_runs import own_status
from orchestrator.service import Orchestrator
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.messages import FleetStatus, JobId, JobRecord, Occupancy
from rollyard.tokens import Role
from serving.access import EVERYONE, Scope, allow
from serving.routes import Routes

PEOPLE = allow(Role.SUBMIT, Role.READ)
ADMIN = allow()
JOB = "/jobs/<path:job_id>"


def add_operator_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    add_status_routes(routes, orchestrator)
    add_question_routes(routes, orchestrator)
    add_order_routes(routes, orchestrator)


def add_status_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    @routes.get("/status", PEOPLE, scope=Scope.WITHIN)
    def status() -> FleetStatus:
        """Status of all Runs, agent servers and LLM nodes."""
        return own_status(orchestrator.status())

    @routes.get("/occupancy", PEOPLE)
    def occupancy() -> Occupancy:
        """Number of busy Slots of every agent server over time."""
        return orchestrator.occupancy.read()

    @routes.get("/metrics", allow(Role.READ), scope=Scope.WITHIN)
    def metrics() -> str:
        """Metrics for Prometheus."""
        return render_metrics(own_status(orchestrator.status()))

    @routes.get("/readyz", EVERYONE, raises=(Unavailable,))
    def readyz() -> str:
        """Whether a Run could make progress."""
        if blocked := orchestrator.operators.why_nothing_runs():
            raise Unavailable(blocked)
        return "ok\n"


def add_question_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators
    routes.get("/jobs", PEOPLE, raises=(NotFound,), scope=Scope.WITHIN)(operators.jobs)
    routes.get("/trajectories/<path:name>", PEOPLE, raises=(NotFound,))(operators.trajectories)
    routes.get("/dead", PEOPLE, raises=(NotFound,), scope=Scope.WITHIN)(operators.dead)
    routes.get("/servers", PEOPLE)(operators.servers)
    routes.get("/checkup", allow(Role.READ))(operators.checkup)
    routes.get("/why/<path:name>", PEOPLE, raises=(NotFound,))(operators.why)

    @routes.get(JOB, PEOPLE, raises=(NotFound,))
    def job(job_id: JobId) -> JobRecord:
        """A Job and its last attempts."""
        return orchestrator.queues.jobs.record(job_id)


def add_order_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    operators, queues = orchestrator.operators, orchestrator.queues
    servers, refused = queues.servers, (NotFound, Conflict)
    routes.post(f"{JOB}/cancel", ADMIN, status=202, raises=refused)(operators.cancel)
    routes.post(f"{JOB}/requeue", ADMIN, status=202, raises=refused)(operators.requeue)
    routes.post("/runs/<run_id>/share", ADMIN, raises=(NotFound,))(queues.runs.share)
    routes.post("/runs/<run_id>/forget", ADMIN, raises=refused)(queues.runs.forget)
    routes.post("/servers/<server_id>/drain", ADMIN, status=202, raises=(NotFound,))(servers.drain)
    routes.post("/llm-nodes/<node_id>/dismiss", ADMIN, raises=refused)(queues.weights.dismiss)
