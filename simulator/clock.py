"""Virtual time: nothing waits, and what is due next happens next."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Clock(Generic[T]):
    """Owns what is due, and the time. What is due together happens in the order it was set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, T]] = []
        self._set = 0

    def at(self, seconds: float, happening: T) -> None:
        self._set += 1
        heapq.heappush(self._due, (seconds, self._set, happening))

    def next(self) -> T | None:
        """Go on to what is due next; None if nothing is."""
        if not self._due:
            return None
        self.now, _, happening = heapq.heappop(self._due)
        return happening
