"""A resource that all who use it share evenly: the CPUs of a node, or an LLM server.

The pace of each depends on their number alone. So there is one progress for all: who begins when it
is p and has work w is done when it is p + w, however many came and went in the meantime.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from simulator.work import Timer

_ROUNDING = 1e-9


@dataclass(slots=True, order=True)
class Use:
    """One use of a resource."""

    ends: float
    """Progress at which it is done."""
    number: int
    """Breaks ties."""
    done: Callable[[], None] = field(compare=False)
    stopped: bool = field(default=False, compare=False)


class SharedResource:
    """Owns its uses, and the account of how much it was used."""

    def __init__(self, clock: Timer, pace: Callable[[int], float]) -> None:
        """`pace` is the work per second of each of so many uses."""
        self._clock, self._pace = clock, pace
        self._progress = self._since = 0.0
        self._uses: list[Use] = []
        self._count = count()
        self._next: tuple[Use, float] | None = None
        self.number = 0
        """Number of uses now."""
        self.busy_seconds = 0.0
        """Time with any use."""
        self.use_seconds = 0.0
        """Time of all uses."""

    def begin(self, work: float, done: Callable[[], None]) -> Use:
        """Use it for so much work, and call `done` after that."""
        self._catch_up()
        use = Use(self._progress + work, next(self._count), done)
        heapq.heappush(self._uses, use)
        self.number += 1
        self._await_next()
        return use

    def stop(self, use: Use) -> float:
        """Stop a use before it is done, and return how much of its work is left."""
        self._catch_up()
        use.stopped = True
        self.number -= 1
        self._await_next()
        return max(0.0, use.ends - self._progress)

    def _catch_up(self) -> None:
        """Book the time since the number of uses changed last."""
        seconds = self._clock.now - self._since
        self._since = self._clock.now
        if self.number:
            self._progress += seconds * self._pace(self.number)
            self.busy_seconds += seconds
            self.use_seconds += seconds * self.number

    def _await_next(self) -> None:
        """Have the clock call when the next use is done, as long as nothing changes."""
        while self._uses and self._uses[0].stopped:
            heapq.heappop(self._uses)
        if not self._uses:
            self._next = None
            return
        first, pace = self._uses[0], self._pace(self.number)
        if self._next is not None and self._next[0] is first and self._next[1] == pace:
            return
        awaited = self._next = (first, pace)
        left = max(0.0, first.ends - self._progress)
        self._clock.at(self._clock.now + left / pace, lambda: self._finish(awaited))

    def _finish(self, awaited: tuple[Use, float]) -> None:
        if self._next is not awaited:  # something changed since
            return
        self._catch_up()
        self._next = None
        finished = list[Use]()
        while self._uses and self._uses[0].ends <= self._progress + _ROUNDING:
            use = heapq.heappop(self._uses)
            if not use.stopped:
                finished.append(use)
        self.number -= len(finished)
        self._await_next()
        for use in finished:
            use.done()
