"""The report's charts, as inline SVG that takes its colours from the page.

Charts are drawn in marker colours which become CSS variables, so that one drawing is legible in
light and in dark, and text stays text. Nothing in the result refers to anything outside it.
"""

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from history import StepRecord
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rollyard import reporting
from rollyard.messages import Occupancy

INK, QUIET, GRID = "#010101", "#010102", "#010103"
REWARD, FILTERED, TRAINING = "#010201", "#010202", "#010203"
FATES = {
    "useful": "#010401",
    "filtered": FILTERED,
    "surplus": "#010402",
    "cancelled": "#010403",
    "failed": "#010404",
    "idle": "#010405",
}
SERVERS = ("#010301", "#010302", "#010303", "#010304")

VARIABLES = {
    INK: "--ink",
    QUIET: "--quiet",
    GRID: "--grid",
    REWARD: "--reward",
    FILTERED: "--filtered",
    TRAINING: "--training",
    SERVERS[0]: "--server-1",
    SERVERS[1]: "--server-2",
    SERVERS[2]: "--server-3",
    SERVERS[3]: "--server-4",
    **{colour: f"--{fate}" for fate, colour in FATES.items()},
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rollyard",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "xtick.labelcolor": QUIET,
    "ytick.color": GRID,
    "ytick.labelcolor": QUIET,
}

_LEGEND: dict[str, Any] = {
    "loc": "outside upper left",
    "ncols": 4,
    "frameon": False,
    "handlelength": 1.6,
    "columnspacing": 1.6,
}


def learning_curve(
    steps: Sequence[StepRecord], pass_rate_before: float, pass_rate_after: float
) -> str:
    """Mean reward and filtered share per step; the pass rates before and after."""
    with mpl.rc_context(_STYLE):
        figure, axes = _new_chart()
        numbers = [step.step for step in steps]
        axes.bar(
            numbers,
            [step.filtered_share for step in steps],
            width=0.7,
            color=FILTERED,
            label="groups filtered (share)",
        )
        axes.plot(
            numbers,
            [step.reward for step in steps],
            color=REWARD,
            linewidth=2,
            marker="o",
            markersize=3.5,
            label="mean reward of all accepted jobs",
        )
        end = len(steps) + 1
        axes.plot(
            [0, end],
            [pass_rate_before, pass_rate_after],
            linestyle="none",
            marker="D",
            markersize=7,
            color=INK,
            label="held-out pass rate before and after",
        )
        for at, rate, side in ((0, pass_rate_before, "left"), (end, pass_rate_after, "right")):
            axes.annotate(f"{rate:.3f}", (at, rate), (0, -16), textcoords="offset points", ha=side)
        axes.set(xlabel="training step", xlim=(-0.6, end + 0.6), ylim=(0, 1.04))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(**_LEGEND)
        return _svg(figure, "Learning curve")


def occupancy_chart(occupancy: Occupancy, steps: Sequence[StepRecord]) -> str:
    """Busy slots over time, stacked per agent server; the training phases shaded."""
    with mpl.rc_context(_STYLE):
        figure, axes = _new_chart()
        started_at = occupancy.points[0].at if occupancy.points else 0.0
        seconds = [point.at - started_at for point in occupancy.points]
        servers = sorted(occupancy.slots)
        if seconds and servers:
            axes.stackplot(
                seconds,
                [[point.busy.get(server, 0) for point in occupancy.points] for server in servers],
                labels=[f"busy slots of {server}" for server in servers],
                colors=[SERVERS[index % len(SERVERS)] for index in range(len(servers))],
                step="post",
                linewidth=0,
            )
        total = sum(occupancy.slots.values())
        axes.axhline(
            total, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"all {total} slots"
        )
        for index, step in enumerate(steps):
            axes.axvspan(
                step.training_started_at - started_at,
                step.ended_at - started_at,
                color=TRAINING,
                linewidth=0,
                zorder=0.5,
                label="training and weight update" if index == 0 else None,
            )
        axes.set(xlabel="seconds", ylabel="slots", ylim=(0, max(1, total) * 1.08))
        axes.margins(x=0.01)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(**_LEGEND)
        return _svg(figure, "Occupancy of the slots over time")


def slot_time_chart(steps: Sequence[StepRecord]) -> str:
    """The shares of the slots' time by use, for each step's batch."""
    with mpl.rc_context(_STYLE):
        figure, axes = _new_chart()
        numbers = [step.step for step in steps]
        shares = [reporting.shares(step.report.slot_seconds) for step in steps]
        below = [0.0] * len(steps)
        for fate, colour in FATES.items():
            heights = [each[fate] for each in shares]
            axes.bar(numbers, heights, bottom=below, width=0.7, color=colour, label=fate)
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axes.set(xlabel="training step", ylabel="share of slot time", ylim=(0, 1.04))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(**(_LEGEND | {"ncols": len(FATES)}))
        return _svg(figure, "Slot time by fate")


def _new_chart() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    figure.patch.set_visible(False)
    axes = figure.subplots()
    axes.patch.set_visible(False)
    axes.grid(visible=False, axis="x")
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    """The drawing as an element to put into a page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawing)
    drawing = re.sub(r' (width|height)="[\d.]+pt"', "", drawing, count=2)
    for colour, variable in VARIABLES.items():
        drawing = drawing.replace(colour, f"var({variable})")
    return drawing.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
