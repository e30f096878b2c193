"""A stage's time, and what happens when it is over. The clock can be held, as while parked."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Alarm = tuple[float, Callable[[], None]]
"""Seconds from the start, and what happens then. It may happen twice."""


class Deadline:
    """Used by one thread at a time; the alarms go off in threads of their own."""

    def __init__(self, *alarms: Alarm) -> None:
        self._alarms = alarms
        self._spent_seconds = 0.0
        self._began = 0.0
        self._timers: list[threading.Timer] = []

    @property
    def ends_at(self) -> float:
        """When the first alarm goes off, on the monotonic clock, if it is not held till then."""
        first = min((seconds for seconds, _ in self._alarms), default=math.inf)
        return self._began + first - self._spent_seconds

    def start(self) -> None:
        """Let the clock run. Raises `RuntimeError` when no thread is to be had."""
        self._began = time.monotonic()
        for seconds, action in self._alarms:
            self._timers.append(after(max(0.0, seconds - self._spent_seconds), action))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._spent_seconds += time.monotonic() - self._began

    @contextmanager
    def held(self) -> Iterator[None]:
        """No time passes inside."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def after(seconds: float, action: Callable[[], None]) -> threading.Timer:
    """Do it after so many seconds, in a thread of its own."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer
