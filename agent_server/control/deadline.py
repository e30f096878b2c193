"""Deadlines, and the one thread that keeps them all.

- An action that is due is done once, in that thread, which it must not block. If it fails, the
  others are done all the same.
- The clock of a deadline can be held, as while its attempt is parked.
"""

import contextlib
import math
import sched
import threading
import time
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger()

Step = tuple[float, Callable[[], None]]
"""An action, and the seconds from the start until it is due."""


class Alarms:
    """Owns the actions that are due later, and the thread that does them."""

    def __init__(self) -> None:
        self._heap = sched.scheduler(time.monotonic)
        self._changed = threading.Event()
        self._closed = False
        threading.Thread(target=self._keep, name="alarms", daemon=True).start()

    def at(self, due: float, name: str, action: Callable[[], None]) -> sched.Event:
        """Do the action when it is `due` on the monotonic clock; `name` is for the log."""
        alarm = self._heap.enterabs(due, 0, _ring, (name, action))
        self._changed.set()
        return alarm

    def cancel(self, alarm: sched.Event) -> None:
        with contextlib.suppress(ValueError):  # it was done already
            self._heap.cancel(alarm)

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    def _keep(self) -> None:
        while not self._closed:
            self._changed.wait(self._heap.run(blocking=False))
            self._changed.clear()


def _ring(name: str, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:  # without the thread no other deadline would be kept
        log.exception("alarm_failed", alarm=name, exc_info=error)


class Deadline:
    """The time limit of one stage, and the steps that are taken once it is over."""

    def __init__(self, alarms: Alarms, name: str, *steps: Step) -> None:
        self.seconds = steps[0][0] if steps else math.inf
        """Seconds until the first step."""
        self._alarms = alarms
        self._name = name
        self._lock = threading.Lock()
        self._left = list(steps)
        self._spent_seconds = 0.0
        self._began = 0.0
        self._alarm: sched.Event | None = None
        """The alarm of the next step, while the clock runs."""

    @property
    def ends_at(self) -> float:
        """Time on the monotonic clock at which the first step is due, if the clock is not held."""
        return self._began + self.seconds - self._spent_seconds

    def start(self) -> None:
        """Start the clock, or start it again."""
        with self._lock:
            self._began = time.monotonic()
            self._await_next()

    def stop(self) -> None:
        """Stop the clock; no step is taken until it runs again."""
        with self._lock:
            self._spent_seconds += time.monotonic() - self._began
            if self._alarm is not None:
                self._alarms.cancel(self._alarm)
                self._alarm = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the clock inside the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def _await_next(self) -> None:
        self._alarm = self._alarms.at(self._due, self._name, self._take) if self._left else None

    @property
    def _due(self) -> float:
        return self._began + self._left[0][0] - self._spent_seconds

    def _take(self) -> None:
        with self._lock:
            # The clock was stopped, or even started again, while the alarm went off.
            if self._alarm is None or not self._left or self._due > time.monotonic():
                return
            _, action = self._left.pop(0)
            self._await_next()
        action()
