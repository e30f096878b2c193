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
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self._order = StopSignal()
        self._go_on = threading.Event()
        """Wakes the attempt that stands still."""
        self._pushed_at = -math.inf
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def order(self) -> StopSignal:
        """Given, with reason `PARKED`, while the attempt is to stand still. Each order to go on
        begins a new signal."""
        with self._lock:
            return self._order

    @property
    def standing(self) -> bool:
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How long it has stood still so far."""
        with self._lock:
            now = time.monotonic()
            return self._seconds + (0.0 if self._since is None else now - self._since)

    def park(self, as_of: float | None = None) -> None:
        """Stand still. An order that answers a question of `as_of`, on the monotonic clock, does
        not count when another one was pushed since then."""
        with self._lock:
            if self._counts(as_of):
                self._order.stop(StopReason.PARKED)

    def resume(self, as_of: float | None = None) -> None:
        """Go on, under whatever weights are in force then."""
        with self._lock:
            if self._counts(as_of) and self._order.reason is not None:
                self._order = StopSignal()
                self._go_on.set()

    def stand(self, stop: StopSignal, deadline: Deadline) -> None:
        """Return as soon as the attempt may go on; `deadline` does not come nearer meanwhile.

        Raises `Stopped`, or `ParkedTooLong`.
        """
        stop.check()
        while self.order.reason is not None:
            with self._standing_still() as go_on, deadline.held(), stop.interrupting(go_on.set):
                in_time = go_on.wait(self._max_seconds)
            stop.check()
            if not in_time:
                raise ParkedTooLong(f"parked for longer than {self._max_seconds:g} s")

    @contextmanager
    def _standing_still(self) -> Iterator[threading.Event]:
        """What wakes the attempt, as an order that has come meanwhile already has."""
        go_on = threading.Event()
        with self._lock:
            self._since = time.monotonic()
            self._go_on = go_on
            if self._order.reason is None:
                go_on.set()
        try:
            yield go_on
        finally:
            with self._lock:
                self._seconds += time.monotonic() - self._since
                self._since = None

    def _counts(self, as_of: float | None) -> bool:
        if as_of is None:
            self._pushed_at = time.monotonic()
            return True
        return as_of >= self._pushed_at
