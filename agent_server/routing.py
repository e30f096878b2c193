"""The routes of trajectories to LLM servers.

- The members of a Group share the server that has their prompt in its prefix cache. Each Group has
  its own order of the servers, by a hash of both, so that all agent servers find the same one
  without asking each other. A new member goes to the first server that is not overloaded.
- A proxy stands for as many servers as are behind it, and has as many shares.
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
from types import MappingProxyType

OVERLOAD = 1.25
"""Consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350."""
AHEAD = 1.05
LATE_TRAJECTORIES = 1024
"""What was given longer ago than so many trajectories hardly counts."""
RECOVERY_SECONDS = 10.0


def choose(
    group: str,
    load: Mapping[str, int],
    ahead: Collection[str] = (),
    shares: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """The server for one more member of the Group, by the number of trajectories on each; one that
    is not `ahead`, if any other has room. A server counts for `shares` of servers, or for one."""
    whole = sum(shares.get(server, 1) for server in load)
    most = OVERLOAD * (sum(load.values()) + 1) / whole  # of each share

    def rank(server: str) -> tuple[bool, float]:
        return server in ahead, _rank(group, server) / shares.get(server, 1)

    ranked = sorted(load, key=rank)
    return next(server for server in ranked if load[server] < most * shares.get(server, 1))


class LLMRoutes:
    """Owns the number of trajectories on each server, and each trajectory's server. Safe to share
    between threads."""

    def __init__(
        self,
        servers: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        shares: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`shares` has the number of LLM servers behind each, where it is not one."""
        self._lock = threading.RLock()
        self._clock = clock
        self.load: dict[str, int] = {}
        """Number of trajectories on each server."""
        self._given: dict[str, float] = {}
        """Number of trajectories that each server was given of late."""
        self._failed_at: dict[str, float] = {}
        self._route: dict[str, str] = {}
        self._shares: dict[str, int] = {}
        for server in servers:
            self.add(server, shares.get(server, 1))

    def add(self, server: str, share: int = 1) -> None:
        """Use this server, too; of one that is used already the share alone is changed."""
        with self._lock:
            self._shares[server] = share
            self._given.setdefault(server, self._given_a_share() * share)
            self.load.setdefault(server, 0)
            self._failed_at.setdefault(server, -math.inf)

    def keep(self, servers: Collection[str]) -> None:
        """Use none but these for any further Turn, of those that are used. Trajectories of the
        others choose again, which they do not count as a failure of theirs."""
        with self._lock:
            for numbers in (self.load, self._given, self._failed_at, self._shares):
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
        server = choose(group, healthy or load, self._ahead(), self._shares)
        self._route[trajectory] = server
        self.load[server] += 1
        for each in self._given:
            self._given[each] *= 1 - 1 / LATE_TRAJECTORIES
        self._given[server] += 1

    def _ahead(self) -> set[str]:
        most = AHEAD * self._given_a_share()
        return {
            server
            for server, given in self._given.items()
            if given > most * self._shares[server] + 1
        }

    def _given_a_share(self) -> float:
        """What each share was given of late, on average."""
        shares = sum(self._shares[server] for server in self._given)
        return sum(self._given.values()) / shares if shares else 0.0


def _rank(group: str, server: str) -> float:
    """The server's place in the Group's order. Divided by its shares, it is the lowest of all for
    as many Groups as the shares are of all shares."""
    # Not hash(), which differs between processes.
    digest = hashlib.blake2b(f"{group} {server}".encode(), digest_size=8).digest()
    return -math.log1p(-(int.from_bytes(digest) >> 11) / 2**53)
