"""Memory budget for bodies that are being received or answered, granted in order of request."""

from collections import deque

from serving.connection import Connection, Phase

MAX_FREE_BYTES = 16 * 2**10
"""Size up to which a body is not counted."""


class BodyMemory:
    """The budget of one lane. Used by the worker's main thread alone."""

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes
        self._queue: deque[tuple[Connection, int]] = deque()

    def take(self, connection: Connection, wanted_bytes: int) -> bool:
        """Whether the connection has its room now. Otherwise it has it once `next` returns it."""
        if wanted_bytes <= MAX_FREE_BYTES:
            return True
        self._queue.append((connection, wanted_bytes))
        if len(self._queue) > 1:  # else smaller bodies could overtake a large one for ever
            return False
        return self.next() is connection

    def next(self) -> Connection | None:
        """The next waiting connection, which has its room now; None if there is none, or not
        enough room."""
        if not self._queue or self._queue[0][1] > self._left_bytes:
            return None
        connection, wanted_bytes = self._queue.popleft()
        self._left_bytes -= wanted_bytes
        connection.reserved_bytes = wanted_bytes
        return connection

    def leave(self, connection: Connection) -> None:
        """Take back the room of a connection, or its place among those that wait for room."""
        self._left_bytes += connection.reserved_bytes
        connection.reserved_bytes = 0
        if connection.phase is Phase.ROOM:
            self._queue = deque(each for each in self._queue if each[0] is not connection)
