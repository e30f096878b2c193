"""Rooms for a limited number of attempts: the Slots, and the places for INIT and EVAL.

- At most `size` attempts have a place, and at most `ahead` wait for one in order of arrival.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Generic, NoReturn, TypeVar

from agent_server.control.stop import StopSignal
from rollyard.errors import Conflict, DeadlineExceeded

A = TypeVar("A")


class Crowded(DeadlineExceeded):
    """The end of a wait for a place. The Lease is given back: the Job may start anew anywhere."""


def withdrawn() -> NoReturn:
    raise Crowded("it was recalled for a free slot of another server")


class Room(Generic[A]):
    """A number of places for attempts. Safe to share between threads."""

    def __init__(self, size: int, ahead: float = math.inf) -> None:
        self._size = size
        self._ahead = ahead
        self._lock = threading.Lock()
        self._places: dict[A, threading.Event] = {}
        """Attempts in order of arrival; the events of the first `size` are set."""

    @property
    def size(self) -> int:
        return self._size

    @property
    def busy(self) -> int:
        return min(len(self._places), self._size)

    @property
    def waiting(self) -> int:
        return max(0, len(self._places) - self._size)

    def enter(self, attempt: A) -> None:
        """Give the attempt a place, or let it wait for one. Raises `Conflict` if neither is
        possible."""
        with self._lock:
            if len(self._places) >= self._size + self._ahead:
                raise Conflict(f"all {self._size} slots are busy")
            place = self._places[attempt] = threading.Event()
            if len(self._places) <= self._size:
                place.set()

    def wait(self, attempt: A, stop: StopSignal, seconds: float) -> None:
        """Return once the attempt has a place. Raises `Stopped`, or `Crowded` after `seconds` and
        for one that was withdrawn."""
        place = self._places.get(attempt) or withdrawn()
        with stop.interrupting(place.set):
            in_time = place.wait(seconds)
        stop.check()
        if not in_time:
            raise Crowded(f"none of {self._size} places became free in {seconds:g} s")

    def waiters(self) -> tuple[A, ...]:
        """The attempts that wait for a place, in their order."""
        with self._lock:
            return tuple(self._places)[self._size :]

    def withdraw(self, attempt: A) -> bool:
        """Let the attempt wait no more; false if it has a place, or never asked for one. Who
        withdraws it wakes it with its stop signal."""
        with self._lock:
            place = self._places.get(attempt)
            if place is None or place.is_set():
                return False
            del self._places[attempt]
            return True

    def leave(self, attempt: A) -> None:
        """Give the attempt's place to the next in turn; leaving twice changes nothing."""
        with self._lock:
            self._places.pop(attempt, None)
            for place in islice(self._places.values(), self._size - 1, self._size):
                place.set()

    @contextmanager
    def held(self, attempt: A, stop: StopSignal, seconds: float) -> Iterator[None]:
        """Hold a place inside the block. Raises as `enter` and `wait`."""
        self.enter(attempt)
        try:
            self.wait(attempt, stop, seconds)
            yield
        finally:
            self.leave(attempt)


def jobs_ahead(slots: int) -> int:
    """Number of Jobs that a server with so many Slots takes ahead: enough for the Slots that become
    free during one request."""
    return -(-slots // 16)
