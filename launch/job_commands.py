"""`rollyard jobs | why | cancel | requeue | dead`: inspect, cancel and requeue jobs."""

from typing import Annotated

import typer

from launch.output import All, Answer, Listing, not_empty
from rollyard.api import OrchestratorAPI
from rollyard.messages import AttemptRecord, JobRecord, JobState

JobId = Annotated[
    str,
    typer.Argument(help="<run>/<group>/<member>, as `rollyard jobs` shows it.", callback=not_empty),
]
Name = Annotated[
    str,
    typer.Argument(
        help="A job, a group <run>/<group>, a run, a batch or a server.", callback=not_empty
    ),
]
RunId = Annotated[str | None, typer.Option("--run", help="Only jobs of this run.")]


def jobs(
    orchestrator: OrchestratorAPI,
    run: RunId = None,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1, max=1000)] = 100,
    closed: All = False,
) -> Answer:
    """List jobs with their last attempt: running, parked, queued, dead and accepted ones, and the
    groups that were dropped, of which nothing but their number is kept."""
    found = orchestrator.jobs(run, state, limit=limit, closed=closed)
    shown = Listing("job", "state", "attempts", "server", "last attempt")
    for job in found.jobs:
        shown.add(job.job_id, job.state, *_last(job))
    dropped = Listing("run", "groups", "fate", "why", title="dropped, and only counted")
    for each in found.gone:
        dropped.add(each.run_id, str(each.groups), each.fate, each.reason)
    return found, [shown, dropped] if found.gone else [shown]


def _last(job: JobRecord) -> tuple[str, str, str]:
    if not job.attempts:
        return "0", "", ""
    last = job.attempts[-1]
    return str(last.attempt), last.server_id, _told(last)


def _told(attempt: AttemptRecord) -> str:
    seconds = f" after {attempt.ended_at - attempt.leased_at:.1f} s" if attempt.ended_at else ""
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.outcome}{seconds}{reason}"


def why(orchestrator: OrchestratorAPI, name: Name) -> Answer:
    """Say in one sentence what a job, group, run, batch or server waits for."""
    found = orchestrator.why(name)
    return found, [found.reason]


def cancel(orchestrator: OrchestratorAPI, job: JobId) -> Answer:
    """Drop a job for good, and its group, which can never be complete without it."""
    return orchestrator.cancel(job), [f"{job} and its group are dropped"]


def requeue(orchestrator: OrchestratorAPI, job: JobId) -> Answer:
    """Feed the prompt of a dead job anew, as a group with a fresh budget."""
    done = orchestrator.requeue(job)
    return done, [f"the prompt of {job} is queued again as group {done.group_id}"]


def dead(orchestrator: OrchestratorAPI, run: RunId = None, closed: All = False) -> Answer:
    """List the jobs that used up their attempts, with the reasons."""
    found = orchestrator.dead(run, closed=closed)
    shown = Listing("job", "lost or failed on", "reason")
    for job in found.jobs:
        servers = dict.fromkeys(attempt.server_id for attempt in job.attempts)
        shown.add(job.job_id, ", ".join(servers), job.reason)
    return found, [shown]


JOB_COMMANDS = (jobs, why, cancel, requeue, dead)
