"""The agent server's HTTP API. Its routes decode, call and encode; the runner does the work."""

from collections.abc import Callable

from flask import Flask

from agent_server.jobs.runner import JobRunner
from agent_server.metrics import Metrics
from agent_server.status import Status
from rollyard.errors import Unavailable
from rollyard.messages import Assignment, GiveBack, GivenBack, Lease, LLMServersToAsk, Taken
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import EVERYONE, allow
from serving.bodies import MAX_BODY_BYTES, MAX_LEASES_BYTES
from serving.routes import Routes


def create_app(
    server_id: str,
    runner: JobRunner,
    metrics: Metrics,
    why_not_ready: Callable[[], str],
    tokens: Tokens = NO_TOKENS,
    *,
    complete: Callable[[Status], Status] = lambda status: status,
    ask_these: Callable[[LLMServersToAsk], None] = lambda servers: None,
) -> Flask:
    """The app of one agent server. `why_not_ready` returns an empty string when Jobs can run;
    `complete` adds to its status what the runner does not know; `ask_these` changes its LLM
    servers."""
    routes = Routes(f"agent server {server_id}", tokens)
    add_job_routes(routes, runner)

    @routes.post("/llm-servers", allow(Role.WORKER))
    def ask_llm_servers(servers: LLMServersToAsk) -> None:
        """Ask these LLM servers and no others; repeating it changes nothing."""
        ask_these(servers)

    @routes.get("/status", allow(Role.READ))
    def status() -> Status:
        """The attempts and Slots of this server."""
        return complete(runner.status(server_id))

    @routes.get("/readyz", EVERYONE, raises=(Unavailable,))
    def readyz() -> None:
        """Whether Jobs can run."""
        if reason := why_not_ready():
            raise Unavailable(f"not ready: {reason}")

    @routes.get("/metrics", allow(Role.READ))
    def prometheus() -> str:
        """Metrics for Prometheus."""
        return metrics.text()

    return routes.app


def add_job_routes(routes: Routes, runner: JobRunner) -> None:
    @routes.post("/jobs", allow(Role.WORKER), status=202, max_bytes=MAX_BODY_BYTES)
    def accept_jobs(load: list[Assignment]) -> Taken:
        """Run these Jobs; taking the same Lease again changes nothing."""
        return runner.accept_all(load)

    @routes.post("/cancel", allow(Role.WORKER), max_bytes=MAX_LEASES_BYTES)
    def cancel_jobs(leases: list[Lease]) -> None:
        """Stop the Leases' attempts."""
        for lease in leases:
            runner.cancel(lease)

    @routes.post("/park", allow(Role.WORKER), max_bytes=MAX_LEASES_BYTES)
    def park_jobs(leases: list[Lease]) -> None:
        """Let the Leases' attempts stand still where they are; unknown ones are ignored."""
        for lease in leases:
            runner.park(lease)

    @routes.post("/resume", allow(Role.WORKER), max_bytes=MAX_LEASES_BYTES)
    def resume_jobs(leases: list[Lease]) -> None:
        """Let the Leases' parked attempts go on; unknown ones are ignored."""
        for lease in leases:
            runner.resume(lease)

    @routes.post("/recall", allow(Role.WORKER))
    def recall_jobs(recall: GiveBack) -> GivenBack:
        """Hand back Jobs that wait for a Slot, the last ones first; none that has begun to run."""
        return runner.recall(recall.jobs)
