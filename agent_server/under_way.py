"""The requests to LLM servers that are under way, so that those to a lost server can be ended.

A machine that is gone does not hang up: without this, whoever waits for its answer would wait for
as long as the Job has.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator

from llm_servers.llm_connection import LLMConnection


class UnderWay:
    """Owns the connections with a request under way, by their server. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[str, set[LLMConnection]] = {}

    @contextlib.contextmanager
    def noted(self, server: str, connection: LLMConnection) -> Iterator[None]:
        """A block in which a request is under way on the connection."""
        with self._lock:
            self._connections.setdefault(server, set()).add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections[server].remove(connection)

    def hang_up(self, server: str) -> None:
        """End all requests to this server, as if it had hung up on them."""
        with self._lock:
            for connection in self._connections.get(server, ()):
                with contextlib.suppress(OSError):  # it has just ended
                    connection.sock.shutdown(socket.SHUT_RDWR)
