"""Calls that are kept waiting for news: each has a thread meanwhile, so they are counted.

Whoever may only read leaves room for those who have work to do.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollyard.errors import Unavailable

MAX_WAITS = 128
"""Of the 256 threads for callers: the others answer at once."""
MAX_READERS_WAITS = 32


class Waits:
    """The calls to one service that wait now."""

    def __init__(self) -> None:
        self._waiting = 0
        self._readers = 0
        self._changing = threading.Lock()

    @contextmanager
    def one(self, reader: bool) -> Iterator[None]:
        """One more waits in the block. Raises `Unavailable` if too many do."""
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
