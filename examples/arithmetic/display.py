"""The display on stderr for people: a progress bar, a line for each step, a closing table."""

from history import StepRecord, Summary
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rollyard import reporting
from rollyard.messages import RunStatus


class Display:
    """The live view of one training run. A context manager: leaving it ends the bar."""

    def __init__(self, console: Console, max_steps: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TextColumn("ETA \u2264"),  # training may well end before its last step
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
        )
        self._steps = self._progress.add_task("train", total=max_steps, start=False, detail="")
        self._evaluation = self._progress.add_task("evaluate", total=1, visible=False, detail="")
        self._reward = "reward -"

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def evaluating(self, status: RunStatus) -> None:
        """Show an evaluation's progress in place of the steps."""
        self._progress.update(self._steps, visible=False)
        self._progress.update(
            self._evaluation,
            visible=True,
            completed=status.effective_groups,
            total=status.requested_batch_size,
            detail=f"running {status.counters.jobs_leased}",
        )

    def evaluated(self, name: str, pass_rate: float) -> None:
        self._progress.update(self._evaluation, visible=False)
        self._progress.update(self._steps, visible=True)
        self._progress.reset(self._evaluation)
        self._progress.console.print(f"pass rate {name} training: {pass_rate:.3f}")

    def training(self, status: RunStatus) -> None:
        """Show what the running step has so far."""
        self._progress.start_task(self._steps)
        self._progress.update(
            self._steps,
            detail=(
                f"{self._reward}, groups {status.effective_groups}/{status.requested_batch_size}, "
                f"filtered {status.counters.groups_filtered}, running {status.counters.jobs_leased}"
            ),
        )

    def stepped(self, record: StepRecord) -> None:
        self._reward = f"reward {record.reward:.2f}"
        self._progress.update(self._steps, completed=record.step)
        self._progress.console.print(
            f"step {record.step:>2}  reward {record.reward:.3f}  "
            f"groups {record.groups_in_batch} kept, {record.groups_filtered} filtered  "
            f"logprob gap {record.logprob_gap:.1e}  "
            f"{record.ended_at - record.rollout_started_at:.1f} s"
        )
        self._progress.console.print(
            f"         {reporting.bias(record.report)}; slots {reporting.waste(record.report)}",
            style="dim",
        )

    def close_with(self, summary: Summary, report: str) -> None:
        """The closing table."""
        table = Table(title="Learned" if summary.ok else "Not learned", title_style="bold")
        table.add_column("what")
        table.add_column("value", justify="right")
        for name, value in summary.to_json().items():
            table.add_row(name.replace("_", " "), _shown(value))
        table.add_row("report", report)
        self._console.print(table)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {share:.0%}" for name, share in value.items() if share)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
