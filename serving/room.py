"""Memory for bodies that are on their way or being answered, given in the order of asking."""

from collections import deque

from serving.connection import Connection, Phase

MAX_FREE_BYTES = 16 * 2**10
"""A body so small is not counted."""


class BodyMemory:
    """Of one lane. One thread uses it: the poller of the worker."""

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes
        self._queue: deque[tuple[Connection, int]] = deque()

    def take(self, connection: Connection, wanted_bytes: int) -> bool:
        """Whether the connection has its room now; else it has it when `next` gives it back."""
        if wanted_bytes <= MAX_FREE_BYTES:
            return True
        self._queue.append((connection, wanted_bytes))
        if len(self._queue) > 1:
            return False
        return self.next() is connection

    def next(self) -> Connection | None:
        """One that has waited, and has its room now."""
        if not self._queue or self._queue[0][1] > self._left_bytes:
            return None
        connection, wanted_bytes = self._queue.popleft()
        self._left_bytes -= wanted_bytes
        connection.reserved_bytes = wanted_bytes
        return connection

    def leave(self, connection: Connection) -> None:
        """It needs no room any more, or has given up waiting for it."""
        self._left_bytes += connection.reserved_bytes
        connection.reserved_bytes = 0
        if connection.phase is Phase.ROOM:
            self._queue = deque(each for each in self._queue if each[0] is not connection)
