"""`rollyard runs`: where each run stands, and what its last batch cost and preferred."""

import typer

from launch.output import DEFAULT_URL, Json, Listing, TokenFile, Url, connect, show
from rollyard import reporting
from rollyard.messages import RunStatus


def add_run_commands(app: typer.Typer) -> None:
    app.command("runs")(runs)


def runs(url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None) -> None:
    """List the runs: their batches, and the last one's slot time by fate, bias and age."""
    found = connect(url, token_file).status().runs
    shown = Listing(
        "run", "batches", "groups", "last batch", "slot time", "bias", "age: trajectories"
    )
    for run in found:
        shown.add(run.run_id, *_batches(run), *_report(run))
    show({"runs": found}, shown, json=json)


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
