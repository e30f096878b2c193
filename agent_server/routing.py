"""Which LLM server a trajectory talks to: the least loaded one, and then always the same.

A trajectory stays where its prefix is cached; it moves only when its server failed it.
"""

import threading
from collections.abc import Sequence


class Routes:
    """Counts the trajectories of each server. Safe to share between threads."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._load = dict.fromkeys(servers, 0)
        self._route: dict[str, str] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._load)

    def server_of(self, trajectory: str) -> str:
        """The trajectory's server; on first use the least loaded one."""
        with self._lock:
            if trajectory not in self._route:
                self._assign(trajectory, min(self._load, key=self._load.__getitem__))
            return self._route[trajectory]

    def move(self, trajectory: str, failed: str) -> None:
        """Leave the `failed` server for the least loaded other one, where there is one."""
        with self._lock:
            others = [server for server in self._load if server != failed]
            if self._route.get(trajectory) == failed and others:
                self._release(trajectory)
                self._assign(trajectory, min(others, key=self._load.__getitem__))

    def release(self, trajectory: str) -> None:
        with self._lock:
            self._release(trajectory)

    def load(self) -> dict[str, int]:
        with self._lock:
            return dict(self._load)

    def _assign(self, trajectory: str, server: str) -> None:
        self._route[trajectory] = server
        self._load[server] += 1

    def _release(self, trajectory: str) -> None:
        server = self._route.pop(trajectory, None)
        if server is not None:
            self._load[server] -= 1
