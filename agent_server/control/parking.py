"""Parking: an attempt stands still where it would ask for tokens, keeps what it holds, and goes on.

- Orders may come at any time, twice, or too late; the last one counts.
- No order is an error: an attempt that never asks for tokens again never stands still.
- An attempt stands still for a limited time, and wakes at once when it is stopped.
- It may ask for several responses at once, each of which stands still by itself. The attempt stands
  still, and its clock with it, as long as one of them does.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from agent_server.control.deadline import Deadline
from agent_server.control.stop import StopReason, StopSignal
from rollyard.errors import DeadlineExceeded


class ParkedTooLong(DeadlineExceeded):
    """The end of a wait for the order to go on. The Lease is given back: the Job may start anew
    anywhere."""


class Parking:
    """The orders for one attempt, and the time for which it has stood still."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self.order = StopSignal()
        """Signal with reason `PARKED` that the attempt is to stand still. An order to go on puts a
        new one in its place."""
        self._go_on: list[threading.Event] = []
        """Events that wake what stands still."""
        self._clock = ExitStack()
        """Holder of the attempt's clock while it stands still."""
        self._pushed_at = -math.inf
        self._since: float | None = None
        self._seconds = 0.0

    @property
    def standing(self) -> bool:
        return self._since is not None

    @property
    def seconds(self) -> float:
        """Seconds for which the attempt has stood still so far."""
        with self._lock:
            now = time.monotonic()
            return self._seconds + (0.0 if self._since is None else now - self._since)

    def park(self, as_of: float | None = None) -> None:
        """Order the attempt to stand still. An order that answers a question of `as_of`, on the
        monotonic clock, does not count when another one was pushed since then."""
        with self._lock:
            if self._counts(as_of):
                self.order.stop(StopReason.PARKED)

    def resume(self, as_of: float | None = None) -> None:
        """Order the attempt to go on, under whatever weights are in force then."""
        with self._lock:
            if self._counts(as_of) and self.order.reason is not None:
                self.order = StopSignal()
                for go_on in self._go_on:
                    go_on.set()

    def stand(self, stop: StopSignal, deadline: Deadline) -> None:
        """Wait until the attempt may go on, while the clock of `deadline` is held. Raises `Stopped`
        or `ParkedTooLong`."""
        stop.check()
        while self.order.reason is not None:
            with self._standing_still(deadline) as go_on, stop.interrupting(go_on.set):
                in_time = go_on.wait(self._max_seconds)
            stop.check()
            if not in_time:
                raise ParkedTooLong(f"parked for longer than {self._max_seconds:g} s")

    @contextmanager
    def _standing_still(self, deadline: Deadline) -> Iterator[threading.Event]:
        """Note that the attempt stands still inside the block, and yield the event that wakes it,
        which is set if the order to go on has come already."""
        go_on = threading.Event()
        with self._lock:
            if not self._go_on:
                self._since = time.monotonic()
                self._clock.enter_context(deadline.held())
            self._go_on.append(go_on)
            if self.order.reason is None:
                go_on.set()
        try:
            yield go_on
        finally:
            with self._lock:
                self._go_on.remove(go_on)
                if not self._go_on:
                    assert self._since is not None
                    self._seconds += time.monotonic() - self._since
                    self._since = None
                    self._clock.close()

    def _counts(self, as_of: float | None) -> bool:
        if as_of is None:
            self._pushed_at = time.monotonic()
            return True
        return as_of >= self._pushed_at
