"""Parking: an attempt stands still where it would ask for tokens, keeps what it holds, and goes on.

- Orders may come at any time, twice, or too late; the last one counts.
- No order is an error: an attempt that never asks for tokens again is never seen to stand still.
- It stands still for a limited time and wakes at once when it is stopped.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agent_server.control.deadline import Deadline
from agent_server.control.stop import StopReason, StopSignal
from rollyard.errors import DeadlineExceeded


class ParkedTooLong(DeadlineExceeded):
    """Its Lease is given back: the Job may start anew anywhere."""


class Parking:
    """Whether one attempt is to stand still, and for how long it has."""

    def __init__(self, max_seconds: float) -> None:
        self._longest_seconds = max_seconds
        self._changed = threading.Condition()
        self._order = StopSignal()
        self._pushed_at = -math.inf
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def order(self) -> StopSignal:
        """Given, with reason `PARKED`, while the attempt is to stand still. Each order to go on
        begins a new signal."""
        with self._changed:
            return self._order

    @property
    def standing(self) -> bool:
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How long it has stood still so far."""
        with self._changed:
            now = time.monotonic()
            return self._seconds + (0.0 if self._since is None else now - self._since)

    def park(self, as_of: float | None = None) -> None:
        """Stand still. An order that answers a question of `as_of`, on the monotonic clock, does
        not count when another one was pushed since then."""
        with self._changed:
            if self._counts(as_of):
                self._order.stop(StopReason.PARKED)

    def resume(self, as_of: float | None = None) -> None:
        """Go on, under whatever weights are in force then."""
        with self._changed:
            if self._counts(as_of) and self._order.reason is not None:
                self._order = StopSignal()
                self._changed.notify_all()

    def stand(self, stop: StopSignal, deadline: Deadline) -> None:
        """Return as soon as the attempt may go on; `deadline` does not come nearer meanwhile.

        Raises `Stopped`, or `ParkedTooLong`.
        """
        stop.check()
        if self.order.reason is None:
            return
        with self._standing_still(), deadline.held(), stop.interrupting(self._wake):
            may_go_on = self._wait(stop)
        stop.check()
        if not may_go_on:
            raise ParkedTooLong(f"parked for longer than {self._longest_seconds:g} s")

    def _wait(self, stop: StopSignal) -> bool:
        """Whether the wait ended in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._order.reason is None or stop.reason is not None,
                self._longest_seconds,
            )

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        since = time.monotonic()
        with self._changed:
            self._since = since
        try:
            yield
        finally:
            with self._changed:
                self._seconds += time.monotonic() - since
                self._since = None

    def _counts(self, as_of: float | None) -> bool:
        if as_of is None:
            self._pushed_at = time.monotonic()
            return True
        return as_of >= self._pushed_at

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
