"""`rollyard runs | close | forget`: list runs, close them, and remove them."""

from typing import Annotated

import typer

from launch.output import All, Json, Listing, TokenFile, Url, connect, not_empty, show
from rollyard import reporting
from rollyard.api import DEFAULT_URL, RunAPI
from rollyard.messages import RunStatus

Run = Annotated[
    str, typer.Argument(help="Id of the run, as `rollyard runs` shows it.", callback=not_empty)
]


def add_run_commands(app: typer.Typer) -> None:
    app.command("runs")(runs)
    app.command("close")(close)
    app.command("forget")(forget)


def runs(
    closed: All = False, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """List the runs with their batches, and the last batch's slot time, length bias and ages."""
    status = connect(url, token_file).status()
    found = [run for run in status.runs if closed or not run.closed]
    shown = Listing(
        "run", "batches", "groups", "last batch", "slot time", "bias", "age: trajectories"
    )
    for run in found:
        shown.add(run.run_id, *_batches(run), *_report(run))
    show({"runs": found}, shown, json=json)


def close(
    run: Run, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """Drop all unfinished work of a run for good and free its slots, as its trainer's `finish`
    does."""
    done = RunAPI(connect(url, token_file), run).finish()
    show(done, f"{run} is closed: nothing of it will run again", json=json)


def forget(
    run: Run, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """Remove a closed run with all its records, as happens by itself after a week."""
    done = RunAPI(connect(url, token_file), run).forget()
    show(done, f"{run} is forgotten", json=json)


def _batches(run: RunStatus) -> tuple[str, str]:
    ready, requested = len(run.batches_ready), len(run.batches)
    groups = f"{run.effective_groups} of {run.requested_batch_size}" if requested else "-"
    return f"{ready} ready of {requested}" if requested else "-", groups


def _report(run: RunStatus) -> tuple[str, str, str, str]:
    report = run.last_report
    if report is None:
        return "-", "-", "-", "-"
    took = f"{report.seconds:.1f} s on {report.slots} slots"
    return took, reporting.waste(report), reporting.bias(report), reporting.ages(report)
