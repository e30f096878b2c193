"""Pictures of the Slots over time: one timeline for each policy, all to one scale."""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from simulator.outcome import TrainingOutcome
from simulator.work import Occupation

_WIDTH, _MARGIN, _TITLE, _AXIS = 880, 12, 34, 26
_COLORS = {"resolved": "#3c8d5a", "unresolved": "#d9903d", "stopped": "#b9bcc4"}


class Stretch(msgspec.Struct, frozen=True):
    """A stretch of virtual time, in seconds, in which a Slot ran a Job without a break."""

    slot: int
    since: float
    until: float
    fate: str
    """Outcome of the attempt: resolved, unresolved, or stopped; a key of `_COLORS`."""


class Recorder:
    """Observes simulated queues. Owns the stretches that their Slots ran Jobs."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []

    def ran(self, attempt: Occupation, until: float, *, over: bool) -> None:
        fate = "resolved" if attempt.draw.reward >= 1.0 else "unresolved"
        ran = attempt.ran + until - attempt.since
        # The tolerance is for rounding: `ran` is a sum of stretches.
        if over and (attempt.fails or ran < attempt.seconds * (1 - 1e-9)):
            fate = "stopped"
        if until > attempt.since:
            self.stretches.append(Stretch(attempt.slot, attempt.since, until, fate))


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    slots: int
    stretches: tuple[Stretch, ...]
    batches: tuple[float, ...]
    """Time at which each Batch was complete."""


def timeline(title: str, outcome: TrainingOutcome, recorder: Recorder) -> Timeline:
    """The timeline of a run without warm-up, until its last Batch was complete."""
    batches = tuple(accumulate(step.seconds for step in outcome.steps))
    within = tuple(each for each in recorder.stretches if each.since < batches[-1])
    return Timeline(title=title, slots=outcome.slots, stretches=within, batches=batches)


def drawn(timelines: Sequence[Timeline]) -> str:
    """The timelines as an SVG document."""
    longest = max(each.batches[-1] for each in timelines)
    row = max(3.0, min(10.0, 220 / max(each.slots for each in timelines)))
    parts, top = list[str](), float(_MARGIN)
    for each in timelines:
        parts += _one(each, top, row, (_WIDTH - 2 * _MARGIN) / longest)
        top += _TITLE + row * each.slots + _AXIS
    legend = "".join(
        f'<rect x="{_MARGIN + 150 * i}" y="{top:.0f}" width="12" height="10" fill="{color}"/>'
        f'<text x="{_MARGIN + 150 * i + 18}" y="{top + 9:.0f}">{fate}</text>'
        for i, (fate, color) in enumerate(_COLORS.items())
    )
    height = round(top + 24)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" fill="#222">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, legend, "</svg>", ""])


def _one(timeline: Timeline, top: float, row: float, scale: float) -> list[str]:
    rows_top = top + _TITLE - 10
    bottom = rows_top + row * timeline.slots
    minutes = timeline.batches[-1] / 60
    parts = [
        f'<text x="{_MARGIN}" y="{top + 12:.0f}" font-weight="bold">{timeline.title}: '
        f"{len(timeline.batches)} batches in {minutes:.0f} minutes</text>"
    ]
    for fate, color in _COLORS.items():
        # One path for each colour keeps the picture of a thousand stretches small.
        path = "".join(
            f"M{_MARGIN + each.since * scale:.1f} {rows_top + row * (each.slot + 0.5):.1f}"
            f"h{max(0.5, (each.until - each.since) * scale - 1):.1f}"
            for each in timeline.stretches
            if each.fate == fate
        )
        if path:
            parts.append(f'<path d="{path}" stroke="{color}" stroke-width="{row * 0.75:.1f}"/>')
    for number, complete in enumerate(timeline.batches, 1):
        x = _MARGIN + complete * scale
        parts.append(
            f'<path d="M{x:.1f} {rows_top:.1f}V{bottom + 4:.1f}" stroke="#222"/>'
            f'<text x="{x - 3:.1f}" y="{bottom + 14:.1f}" text-anchor="end">batch {number}</text>'
        )
    return parts
