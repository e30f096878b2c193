"""Connections to LLM servers that are kept from one request to the next.

- Owns those on which nothing is under way. One is lent to one request at a time, and comes back
  only when the answer to it has ended.
- None is kept for longer than `IDLE_SECONDS`, nor more than `MAX_IDLE` to one server.
"""

import contextlib
import math
import threading
import time
from collections import deque

from llm_servers.llm_connection import LLMConnection

IDLE_SECONDS = 4.0
"""Less than what vLLM waits for another request, which is 5 s."""
MAX_IDLE = 64
"""Limit on the connections to one server on which nothing is under way."""
_LOOK_SECONDS = 1.0


class KeptConnections:
    """Safe to share between threads."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: dict[str, deque[tuple[float, LLMConnection]]] = {}
        """Connections to each server with the time until which they are kept, the oldest first."""
        self._closed = threading.Event()
        self._looks = False
        """True while there is a thread that closes those that are too old."""

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._idle.values()))

    def take(self, server: str) -> LLMConnection | None:
        """A connection to the server that can take a request, as far as can be told; the one that
        was used last, so that the others grow old."""
        while True:
            with self._lock:
                kept = self._idle.get(server)
                if not kept:
                    return None
                until, connection = kept.pop()
            if until > time.monotonic() and connection.is_free():
                return connection
            connection.close()

    def keep(self, server: str, connection: LLMConnection) -> None:
        """Keep the connection, on which nothing is under way any more, for the next request."""
        with self._lock:
            kept = self._idle.setdefault(server, deque())
            kept.append((time.monotonic() + self._idle_seconds, connection))
            surplus = kept.popleft()[1] if len(kept) > MAX_IDLE or self._closed.is_set() else None
            if not self._looks and not self._closed.is_set():
                self._begin_to_look()
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        """Keep none any more."""
        self._closed.set()
        for connection in self._taken(math.inf):
            connection.close()

    def _begin_to_look(self) -> None:
        thread = threading.Thread(target=self._look, name="kept-connections", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system has no thread for it: next time
            thread.start()
            self._looks = True

    def _look(self) -> None:
        """Close those that are too old, until there is none."""
        while not self._closed.wait(_LOOK_SECONDS):
            for connection in self._taken(time.monotonic()):
                connection.close()
            with self._lock:
                if not self._idle:
                    self._looks = False
                    return

    def _taken(self, now: float) -> list[LLMConnection]:
        """Those whose time is over by then, which are kept no more."""
        old = []
        with self._lock:
            for server, kept in tuple(self._idle.items()):
                while kept and kept[0][0] <= now:
                    old.append(kept.popleft()[1])
                if not kept:
                    del self._idle[server]
        return old
