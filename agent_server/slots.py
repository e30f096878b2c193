"""Which attempts have a Slot, and which were taken ahead and wait for one.

- At most `slots` attempts have a Slot, at most `ahead` wait; those that wait get one in turn.

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

    def has_one(self, attempt: A) -> bool:
        """Whether it has a Slot; else it waits for one."""
        return attempt in self._working

    def leave(self, attempt: A) -> None:
        """It is over. Its Slot goes to the next in turn."""
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            return
        self._working.remove(attempt)
        if self._waiting:
            self._working.append(self._waiting.pop(0))


def jobs_ahead(slots: int) -> int:
    """How many Jobs a server of so many Slots takes ahead: enough for the Slots that become free
    while one request is on its way."""
    return -(-slots // 16)
