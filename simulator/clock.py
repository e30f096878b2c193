"""Virtual time: nothing waits, and the clock jumps to the next event due."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Clock(Generic[T]):
    """Owns the time and the events due. Events of the same time come in the order of `at`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, T]] = []
        self._set = 0

    def at(self, seconds: float, happening: T) -> None:
        """Schedule an event, in seconds of virtual time since the start."""
        self._set += 1  # breaks ties, so that events themselves need no order
        heapq.heappush(self._due, (seconds, self._set, happening))

    def next(self) -> T | None:
        """Advance to the next event due; None if there is none."""
        if not self._due:
            return None
        self.now, _, happening = heapq.heappop(self._due)
        return happening
