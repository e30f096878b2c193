"""The HTTP API for operators: status, questions, and orders."""

from orchestrator.metrics import render_metrics
from orchestrator.service import Orchestrator
from orchestrator.why import why_no_server
from rollyard.errors import Conflict, NotFound, Unavailable
from rollyard.messages import (
    Checkup,
    DeadJobs,
    Explanation,
    FleetStatus,
    JobId,
    JobList,
    JobRecord,
    JobState,
    JobViews,
    MostJobs,
    Name,
    Occupancy,
    Requeued,
    ServerList,
)
from rollyard.tokens import Role
from serving.access import EVERYONE, allow
from serving.routes import Routes

PEOPLE = allow(Role.SUBMIT, Role.READ)


def add_operator_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    add_status_routes(routes, orchestrator)
    add_question_routes(routes, orchestrator)
    add_order_routes(routes, orchestrator)


def add_status_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    @routes.get("/status", PEOPLE)
    def status() -> FleetStatus:
        """Status of all Runs, agent servers and LLM nodes."""
        return orchestrator.status()

    @routes.get("/occupancy", PEOPLE)
    def occupancy() -> Occupancy:
        """Number of busy Slots of every agent server over time."""
        return orchestrator.occupancy.read()

    @routes.get("/metrics", allow(Role.READ))
    def metrics() -> str:
        """Metrics for Prometheus."""
        return render_metrics(orchestrator.status())

    @routes.get("/readyz", EVERYONE, raises=(Unavailable,))
    def readyz() -> str:
        """Whether a Run could make progress."""
        fleet = orchestrator.operators.fleet()
        if blocked := why_no_server(fleet):
            raise Unavailable(blocked)
        if not orchestrator.queues.weights.nodes():
            raise Unavailable("no LLM node has registered")
        return "ok\n"


def add_question_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators

    @routes.get("/jobs", PEOPLE, raises=(NotFound,))
    def jobs(
        *,
        run: Name | None = None,
        state: JobState | None = None,
        limit: MostJobs = 100,
        closed: bool = False,
    ) -> JobList:
        """Jobs with their last attempts: running, parked, queued, dead and accepted ones. Without
        `run`, those of closed Runs only with `closed`."""
        return JobList(jobs=operators.jobs(run, state, limit, closed=closed))

    @routes.get("/jobs/<path:job_id>", PEOPLE, raises=(NotFound,))
    def job(job_id: JobId) -> JobRecord:
        """A Job and its last attempts."""
        return orchestrator.queues.jobs.record(job_id)

    @routes.get("/trajectories/<path:name>", PEOPLE, raises=(NotFound,))
    def trajectories(name: str, *, limit: MostJobs = 16) -> JobViews:
        """Histories and trajectories of a Job, or of the first members of a Group."""
        return JobViews(jobs=operators.views(name, limit))

    @routes.get("/dead", PEOPLE, raises=(NotFound,))
    def dead(*, run: Name | None = None, closed: bool = False) -> DeadJobs:
        """Jobs that used up their attempts, with the reasons. Without `run`, those of closed Runs
        only with `closed`."""
        return DeadJobs(jobs=operators.dead(run, closed=closed))

    @routes.get("/servers", PEOPLE)
    def servers() -> ServerList:
        """The agent servers and their health."""
        return ServerList(servers=operators.servers())

    @routes.get("/checkup", allow(Role.READ))
    def checkup() -> Checkup:
        """Health of the queues, for `rollyard doctor`."""
        return operators.checkup()

    @routes.get("/why/<path:name>", PEOPLE, raises=(NotFound,))
    def why(name: str) -> Explanation:
        """The reason why a Run, Batch, Group, Job or server waits."""
        return operators.why(name)


def add_order_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    operators = orchestrator.operators

    @routes.post("/jobs/<path:job_id>/cancel", allow(), status=202, raises=(NotFound, Conflict))
    def cancel(job_id: JobId) -> None:
        """Drop the Job and its Group."""
        operators.cancel(job_id)

    @routes.post("/jobs/<path:job_id>/requeue", allow(), status=202, raises=(NotFound, Conflict))
    def requeue(job_id: JobId) -> Requeued:
        """Feed a dead Job's Prompt anew."""
        return Requeued(group_id=operators.requeue(job_id))

    @routes.post("/runs/<run_id>/forget", allow(), raises=(NotFound, Conflict))
    def forget(run_id: Name) -> None:
        """Remove a closed Run with all its records."""
        orchestrator.queues.runs.forget(run_id)

    @routes.post("/servers/<server_id>/drain", allow(), status=202, raises=(NotFound,))
    def drain(server_id: Name) -> None:
        """Let an agent server finish the Jobs that it runs, and leave."""
        orchestrator.queues.servers.drain(server_id)

    @routes.post("/llm-nodes/<node_id>/dismiss", allow(), raises=(NotFound, Conflict))
    def dismiss(node_id: Name) -> None:
        """Stop waiting for an LLM node that is gone for good."""
        orchestrator.queues.weights.dismiss(node_id)
