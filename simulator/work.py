"""Attempts under way, and what they spend time on: their own, or machines that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from simulator.clock import Clock
from simulator.dataset import Draw


@dataclass(slots=True, eq=False)
class Occupation:
    """An attempt at a Job, on its Slot."""

    job: str
    slot: int
    weight_version: int
    draw: Draw
    seconds: float
    """Running time after which it ends, where it shares nothing with others."""
    fails: bool
    """True if it ends by an infrastructure failure."""
    since: float
    """Time at which it began, or was last resumed."""
    runs: bool = False
    """False while it is parked, and once it is over."""
    ran: float = 0.0
    """Running time before `since`."""
    ends_at: float | None = None
    """Time at which it ends; None while it is not known, or parked, and once it is over."""


Timer = Clock[Occupation | Callable[[], None]]
"""The clock of a simulated run: an attempt comes due when it ends."""


class Work(Protocol):
    """What attempts spend their time on."""

    def go(self, attempt: Occupation) -> None:
        """Begin the attempt, or go on with it. It sets its `ends_at`, and comes due then."""

    def stop(self, attempt: Occupation, *, over: bool) -> None:
        """Stop the attempt where it is; for good if it is `over`."""


class OwnPace:
    """Work that takes each attempt its own time, whatever else runs."""

    def __init__(self, clock: Timer) -> None:
        self._clock = clock

    def go(self, attempt: Occupation) -> None:
        attempt.ends_at = attempt.since + attempt.seconds - attempt.ran
        self._clock.at(attempt.ends_at, attempt)

    def stop(self, attempt: Occupation, *, over: bool) -> None:
        """The clock keeps its old end, which is due no more."""
