"""Limits on long polls, each of which holds a thread while it waits.

Callers that may only read have a lower limit, so that trainers always find room.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollyard.errors import Unavailable

MAX_WAITS = 128
"""Long polls at a time, of the 256 threads for callers: the others serve calls without a wait."""
MAX_READERS_WAITS = 32


class Waits:
    """The long polls that one service answers now. Safe to share."""

    def __init__(self) -> None:
        self._waiting = 0
        self._readers = 0
        self._changing = threading.Lock()

    @contextmanager
    def one(self, reader: bool) -> Iterator[None]:
        """A block in which one long poll waits. Raises `Unavailable` if too many do already."""
        with self._changing:
            if self._waiting >= MAX_WAITS or (reader and self._readers >= MAX_READERS_WAITS):
                raise Unavailable(
                    f"{self._readers if reader else self._waiting} calls wait for news already",
                    fix="ask again a little later, or without wait_seconds",
                )
            self._waiting += 1
            self._readers += reader
        try:
            yield
        finally:
            with self._changing:
                self._waiting -= 1
                self._readers -= reader
