"""`rollyard runs | share | close | forget`: list runs, share slots, close runs and remove them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from launch.output import All, Answer, Listing, not_empty
from rollyard import reporting
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.messages import RunStatus, Share
from rollyard.messages.base import MOST
from rollyard.messages.share import MAX_WEIGHT

Run = Annotated[
    str, typer.Argument(help="Id of the run, as `rollyard runs` shows it.", callback=not_empty)
]

Weight = Annotated[
    float | None,
    typer.Option(
        help="Slots that it gets for each one of a run of weight 1.", min=0, max=MAX_WEIGHT
    ),
]
MaxSlots = Annotated[
    int | None, typer.Option(help="Slots that it may hold at most; 0 pauses it.", min=0, max=MOST)
]

BATCHES = ("batches", "groups")
JOBS = ("leased", "share", "queued")
REPORT = ("last batch", "slot time", "bias", "age: trajectories")


def runs(orchestrator: OrchestratorAPI, closed: All = False) -> Answer:
    """List the runs: their batches, their jobs on slots with their part of all runs' and those
    queued, and the last batch's slot time, length bias and ages."""
    found = [run for run in orchestrator.status().runs if closed or not run.closed]
    return {"runs": found}, [listing(found)]


def listing(runs: Sequence[RunStatus]) -> Listing:
    """The runs, a row each. Of a closed run nothing is leased."""
    shown = Listing("run", *BATCHES, *JOBS, *REPORT)
    leased = sum(run.counters.jobs_leased for run in runs)
    for run in runs:
        shown.add(run.run_id, *_batches(run), *_jobs(run, leased), *_report(run))
    return shown


def share(
    orchestrator: OrchestratorAPI,
    run: Run,
    weight: Weight = None,
    max_slots: MaxSlots = None,
    unlimited: Annotated[bool, typer.Option(help="Let it hold any number of slots.")] = False,
) -> Answer:
    """Say how many slots a run gets beside others that wait for them, and how many at most.
    What is not said stays as it is."""
    if unlimited and max_slots is not None:
        raise typer.BadParameter("--unlimited and --max-slots exclude each other")
    asked = RunAPI(orchestrator, run)
    before = asked.status().share
    most = None if unlimited else before.max_slots if max_slots is None else max_slots
    given = Share(weight=before.weight if weight is None else weight, max_slots=most)
    asked.give_share(given)
    limit = "any number of slots" if most is None else f"at most {most} slots"
    return given, [f"{run} has weight {given.weight:g}, and may hold {limit}"]


def close(orchestrator: OrchestratorAPI, run: Run) -> Answer:
    """Drop all unfinished work of a run for good and free its slots, as its trainer's `finish`
    does."""
    done = RunAPI(orchestrator, run).finish()
    return done, [f"{run} is closed: nothing of it will run again"]


def forget(orchestrator: OrchestratorAPI, run: Run) -> Answer:
    """Remove a closed run with all its records, as happens by itself after --retention-hours."""
    return RunAPI(orchestrator, run).forget(), [f"{run} is forgotten"]


def _batches(run: RunStatus) -> tuple[str, str]:
    ready, requested = len(run.batches_ready), len(run.batches)
    groups = f"{run.effective_groups} of {run.requested_batch_size}" if requested else "-"
    return f"{ready} ready of {requested}" if requested else "-", groups


def _jobs(run: RunStatus, leased: int) -> tuple[str, str, str]:
    """Jobs of the run that hold slots or wait ahead for one, their part of those `leased` to all
    runs, and the jobs that are queued."""
    jobs, parked = run.counters.jobs_leased, run.counters.jobs_parked
    held = f"{jobs}, {parked} parked" if parked else str(jobs)
    part = f"{jobs / leased:.0%}" if leased else "-"
    return held, part + _said(run.share), str(run.counters.jobs_queued)


def _said(share: Share) -> str:
    """A clause on what an operator has said of a Run's share; empty if nothing."""
    weight = "" if share.weight == 1 else f", weight {share.weight:g}"
    return weight + ("" if share.max_slots is None else f", at most {share.max_slots}")


def _report(run: RunStatus) -> tuple[str, str, str, str]:
    report = run.last_report
    if report is None:
        return "-", "-", "-", "-"
    took = f"{report.seconds:.1f} s on {report.slots} slots"
    return took, reporting.waste(report), reporting.bias(report), reporting.ages(report)


RUN_COMMANDS = (runs, share, close, forget)
