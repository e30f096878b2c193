"""The routes of trajectories to LLM servers.

- The members of a Group share the server that has their prompt in its prefix cache. Each Group has
  its own order of the servers, by a hash of both, so that all agent servers find the same one
  without asking each other. A new member goes to the first server that is not overloaded.
- A server is overloaded when it has `OVERLOAD` times its share of this agent server's trajectories.
  So it is never given more than that share, rounded up, nor the sum of them over agent servers.
- It is ahead when it was given `AHEAD` times the average of late, and more by one. It gets no new
  trajectory until others have caught up, so that over a run all servers do the same.
- A trajectory stays where its own prefix is cached; it moves only when its server failed it. A
  server that failed gives its Groups to the next in order until `RECOVERY_SECONDS` later.
- Servers come and go. A trajectory whose server has gone chooses another for its next Turn.
"""

import hashlib
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean

OVERLOAD = 1.25
"""Consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350."""
AHEAD = 1.05
LATE_TRAJECTORIES = 1024
"""What was given longer ago than so many trajectories hardly counts."""
RECOVERY_SECONDS = 10.0


def choose(group: str, load: Mapping[str, int], ahead: Collection[str] = ()) -> str:
    """The server for one more member of the Group, by the number of trajectories on each; one that
    is not `ahead`, if any other has room."""
    most = OVERLOAD * (sum(load.values()) + 1) / len(load)
    ranked = sorted(load, key=lambda server: (server in ahead, _rank(group, server)))
    return next(server for server in ranked if load[server] < most)


class LLMRoutes:
    """Owns the number of trajectories on each server, and each trajectory's server. Safe to share
    between threads."""

    def __init__(self, servers: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self.load: dict[str, int] = {}
        """Number of trajectories on each server."""
        self._given: dict[str, float] = {}
        """Number of trajectories that each server was given of late."""
        self._failed_at: dict[str, float] = {}
        self._route: dict[str, str] = {}
        for server in servers:
            self.add(server)

    def add(self, server: str) -> None:
        """Use this server, too; one that is used already is not changed."""
        with self._lock:
            self._given.setdefault(server, fmean(self._given.values()) if self._given else 0.0)
            self.load.setdefault(server, 0)
            self._failed_at.setdefault(server, -math.inf)

    def keep(self, servers: Collection[str]) -> None:
        """Use none but these for any further Turn, of those that are used. Trajectories of the
        others choose again, which they do not count as a failure of theirs."""
        with self._lock:
            for numbers in (self.load, self._given, self._failed_at):
                for server in set(numbers).difference(servers):
                    del numbers[server]
            for trajectory, server in tuple(self._route.items()):
                if server not in self.load:
                    del self._route[trajectory]

    def server_of(self, trajectory: str, group: str) -> str | None:
        """The trajectory's server, chosen on first use; None while there are no servers."""
        with self._lock:
            if trajectory not in self._route and self.load:
                self._assign(trajectory, group, self.load)
            return self._route.get(trajectory)

    def move(self, trajectory: str, group: str, failed: str) -> None:
        """Leave the `failed` server for another one, where there is one."""
        with self._lock:
            if failed not in self.load:  # it has gone, and its trajectories with it
                return
            self._failed_at[failed] = self._clock()
            others = {server: load for server, load in self.load.items() if server != failed}
            if self._route.get(trajectory) == failed and others:
                self.release(trajectory)
                self._assign(trajectory, group, others)

    def release(self, trajectory: str) -> None:
        with self._lock:
            server = self._route.pop(trajectory, None)
            if server is not None:
                self.load[server] -= 1

    def _assign(self, trajectory: str, group: str, load: Mapping[str, int]) -> None:
        recovered = self._clock() - RECOVERY_SECONDS
        healthy = {each: load[each] for each in load if self._failed_at[each] <= recovered}
        server = choose(group, healthy or load, self._ahead())
        self._route[trajectory] = server
        self.load[server] += 1
        for each in self._given:
            self._given[each] *= 1 - 1 / LATE_TRAJECTORIES
        self._given[server] += 1

    def _ahead(self) -> set[str]:
        most = AHEAD * fmean(self._given.values()) + 1
        return {server for server, given in self._given.items() if given > most}


def _rank(group: str, server: str) -> bytes:
    # Not hash(), which differs between processes.
    return hashlib.blake2b(f"{group} {server}".encode(), digest_size=8).digest()
