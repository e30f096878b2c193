"""Looks at Runs, shared by all who wait for something of the same one.

- Of those who wait for one Run, one sleeps in the queues and looks when it is woken; the others are
  shown what it saw. So many who wait cost the queues as much as one.
- Owns what was seen last of each Run that somebody waits for, and forgets it with the last of them.
- Whoever watches hands over before it leaves, also when it leaves by an error.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class _Room(Generic[Seen]):
    """Those who wait for one Run."""

    def __init__(self) -> None:
        self.waiting = 0
        self.is_watched = False
        self.looks = 0
        self.seen: Seen | None = None


class SharedLooks(Generic[Seen]):
    """`look` at a Run is to be quick; `sleep` returns when the Run may look different, at the
    latest after so many seconds."""

    def __init__(self, look: Callable[[str], Seen], sleep: Callable[[str, float], None]) -> None:
        self._look = look
        self._sleep = sleep
        self._changed = threading.Condition()
        self._rooms: dict[str, _Room[Seen]] = {}

    def wait(self, run_id: str, seconds: float, reached: Callable[[Seen], bool]) -> Seen:
        """The look at which `reached` is true, or the last one after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            room = self._rooms.setdefault(run_id, _Room())
            room.waiting += 1
        try:
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
        """The first look after so many `looks`, with its number; the same again when time is up."""
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
