"""`rollyard jobs | why | show | cancel | requeue | dead`: inspect, cancel and requeue jobs."""

from typing import Annotated

import typer

from launch.output import All, Json, Listing, TokenFile, Url, connect, not_empty, show
from launch.show import show_command
from rollyard.api import DEFAULT_URL
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


def add_job_commands(app: typer.Typer) -> None:
    app.command("jobs")(jobs)
    app.command("why")(why)
    app.command("show")(show_command)
    app.command("cancel")(cancel)
    app.command("requeue")(requeue)
    app.command("dead")(dead)


def jobs(
    run: RunId = None,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1, max=1000)] = 100,
    closed: All = False,
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """List jobs with their last attempt: running, parked, queued, dead and accepted ones."""
    found = connect(url, token_file).jobs(run, state, limit=limit, closed=closed)
    shown = Listing("job", "state", "attempts", "server", "last attempt")
    for job in found.jobs:
        shown.add(job.job_id, job.state, *_last(job))
    show(found, shown, json=json)


def _last(job: JobRecord) -> tuple[str, str, str]:
    if not job.attempts:
        return "0", "", ""
    last = job.attempts[-1]
    return str(last.attempt), last.server_id, _told(last)


def _told(attempt: AttemptRecord) -> str:
    seconds = f" after {attempt.ended_at - attempt.leased_at:.1f} s" if attempt.ended_at else ""
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"{attempt.outcome}{seconds}{reason}"


def why(
    name: Name,
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Say in one sentence what a job, group, run, batch or server waits for."""
    reason = connect(url, token_file).why(name)
    show(reason, reason.reason, json=json)


def cancel(
    job: JobId, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """Drop a job for good, and its group, which can never be complete without it."""
    done = connect(url, token_file).cancel(job)
    show(done, f"{job} and its group are dropped", json=json)


def requeue(
    job: JobId, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """Feed the prompt of a dead job anew, as a group with a fresh budget."""
    done = connect(url, token_file).requeue(job)
    show(done, f"the prompt of {job} is queued again as group {done.group_id}", json=json)


def dead(
    run: RunId = None,
    closed: All = False,
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """List the jobs that used up their attempts, with the reasons."""
    found = connect(url, token_file).dead(run, closed=closed)
    shown = Listing("job", "lost or failed on", "reason")
    for job in found.jobs:
        servers = dict.fromkeys(attempt.server_id for attempt in job.attempts)
        shown.add(job.job_id, ", ".join(servers), job.reason)
    show(found, shown, json=json)
