"""Which attempts have a Slot, and which were taken ahead and wait for one.

- At most `slots` attempts have a Slot, at most `ahead` wait; those that wait get one in turn.
- An attempt that waits is in INIT or, once that is over, ready: no thread works on it.

Called with the runner's lock held.
"""

from typing import Generic, TypeVar

from rollyard.errors import Conflict

A = TypeVar("A")


class Slots(Generic[A]):
    def __init__(self, slots: int, ahead: int) -> None:
        self._slots = slots
        self._ahead = ahead
        self._working: list[A] = []
        self._waiting: list[A] = []
        self._ready: list[A] = []
        """Those of the waiting ones that are through INIT."""

    @property
    def busy(self) -> int:
        return len(self._working)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, attempt: A) -> None:
        """Give it a Slot, or let it wait for one. Raises `Conflict` if there is no room."""
        if len(self._working) < self._slots:
            self._working.append(attempt)
        elif len(self._waiting) < self._ahead:
            self._waiting.append(attempt)
        else:
            raise Conflict(f"all {self._slots} slots are busy")

    def may_work(self, attempt: A) -> bool:
        """Whether it has a Slot; if not, it is ready, until it has one."""
        if attempt in self._working:
            return True
        self._ready.append(attempt)
        return False

    def withdraw(self, attempt: A) -> bool:
        """Whether it was ready; it has no turn any more then."""
        if attempt not in self._ready:
            return False
        self._ready.remove(attempt)
        return True

    def leave(self, attempt: A) -> A | None:
        """It is over. Its Slot goes to the next in turn, which is returned if it was ready."""
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            return None
        self._working.remove(attempt)
        if not self._waiting:
            return None
        following = self._waiting.pop(0)
        self._working.append(following)
        return following if self.withdraw(following) else None


def jobs_ahead(slots: int) -> int:
    """How many Jobs a server of so many Slots takes ahead: enough for the Slots that become free
    while one request is on its way."""
    return -(-slots // 16)
