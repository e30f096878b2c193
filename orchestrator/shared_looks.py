"""Reads of Runs, shared by all calls that wait for the same one.

- Of the calls that wait for a Run, one sleeps in the queues and reads when it is woken; the others
  get what it read. Any number of waiting calls costs the queues as much as one.
- Owns the last read of each Run that a call waits for, and forgets it with the last such call.
- The call that watches hands over before it returns, also if it raises.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class _Room(Generic[Seen]):
    """The calls that wait for one Run."""

    def __init__(self) -> None:
        self.waiting = 0
        """Number of these calls."""
        self.is_watched = False
        """True while one of them sleeps in the queues for all."""
        self.looks = 0
        """Number of shared reads so far."""
        self.seen: Seen | None = None
        """The last shared read."""


class SharedLooks(Generic[Seen]):
    """Shared waits for Runs. `look` reads a Run and must be quick; `sleep` returns when the Run may
    have changed, at the latest after the given seconds."""

    def __init__(self, look: Callable[[str], Seen], sleep: Callable[[str, float], None]) -> None:
        self._look = look
        self._sleep = sleep
        self._changed = threading.Condition()
        self._rooms: dict[str, _Room[Seen]] = {}

    def wait(self, run_id: str, seconds: float, reached: Callable[[Seen], bool]) -> Seen:
        """The first read for which `reached` is true, or the last one after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            room = self._rooms.setdefault(run_id, _Room())
            room.waiting += 1
        try:
            # Its own read comes first: a shared one may predate what the caller has just done.
            looks, seen = room.looks, self._look(run_id)
            while not reached(seen) and (left := deadline - time.monotonic()) > 0:
                looks, seen = self._next_look(run_id, room, looks, seen, left)
            return seen
        finally:
            with self._changed:
                room.waiting -= 1
                if not room.waiting:
                    del self._rooms[run_id]

    def _next_look(
        self, run_id: str, room: _Room[Seen], looks: int, seen: Seen, seconds: float
    ) -> tuple[int, Seen]:
        """(number, content) of the next read after number `looks`; the present one if time is
        up."""
        with self._changed:
            self._changed.wait_for(lambda: room.looks > looks or not room.is_watched, seconds)
            if room.looks > looks and room.seen is not None:
                return room.looks, room.seen
            if room.is_watched:
                return looks, seen
            room.is_watched = True
        try:
            self._sleep(run_id, seconds)
            seen = self._look(run_id)
            with self._changed:
                room.seen, room.looks = seen, room.looks + 1
                return room.looks, seen
        finally:
            with self._changed:
                room.is_watched = False
                self._changed.notify_all()
