"""Which Slots of which servers may be offered, in the in-memory queues: `_servers.lua`'s twin.

The fields are named as the Redis keys. Called with the lock of its queues held.
"""

from collections.abc import Callable

import msgspec

from orchestrator.queues.operations import QuarantineSettings
from rollyard.messages import ServerCondition, ServerState


class ServerHealth:
    def __init__(self, settings: QuarantineSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self.held: dict[str, tuple[ServerState, str]] = {}
        """Server -> why its Slots are not offered, and the one Slot that is."""
        self.quarantine: dict[str, tuple[float, int]] = {}
        self.failing: dict[str, list[str]] = {}
        self.reclaims: dict[str, float] = {}
        self.reclaimed: dict[str, ServerCondition] = {}
        """Only the sums over the server's Slots."""

    def may_offer(self, slot: str, has_room: bool) -> bool:
        """`has_room`: one of its server's Slots is free to work."""
        server = _server_of(slot)
        state, on_probation = self.held.get(server, (ServerState.SERVING, ""))
        if state is ServerState.SERVING or slot == on_probation:
            return True
        if state is not ServerState.QUARANTINED or not has_room:
            return False
        if self._clock() < self.quarantine[server][0]:
            return False
        self.held[server] = (ServerState.PROBATION, slot)
        return True

    def takes_jobs(self, server: str) -> bool:
        """Whether nothing is held against it."""
        return server not in self.held

    def failed(self, server: str, job: str, servers: int) -> bool:
        """Note a failed attempt; True if the server was quarantined for it."""
        jobs = self.failing.setdefault(server, [])
        if len(jobs) < self._settings.after_failures and job not in jobs:
            jobs.append(job)
        if server in self.held:
            quarantined = self.held[server][0] is ServerState.PROBATION
        else:
            enough = len(jobs) >= self._settings.after_failures
            quarantined = enough and (len(self.quarantine) + 1) * 2 <= servers
        if quarantined:
            self._quarantine(server)
        return quarantined

    def _quarantine(self, server: str) -> None:
        _, times = self.quarantine.get(server, (0.0, 0))
        seconds = min(self._settings.first_seconds * 2**times, self._settings.longest_seconds)
        self.quarantine[server] = (self._clock() + seconds, times + 1)
        self.held[server] = (ServerState.QUARANTINED, "")

    def succeeded(self, server: str) -> None:
        self.failing.pop(server, None)
        if self.held.get(server, (ServerState.SERVING, ""))[0] is ServerState.PROBATION:
            del self.held[server], self.quarantine[server]

    def drain(self, server: str) -> None:
        self.quarantine.pop(server, None)
        self.held[server] = (ServerState.DRAINING, "")

    def is_draining(self, server: str) -> bool:
        return self.held.get(server, (ServerState.SERVING, ""))[0] is ServerState.DRAINING

    def return_from(self, server: str, trouble: tuple[float, int]) -> None:
        """A server that was quarantined has started again."""
        self.quarantine[server] = trouble
        self.held[server] = (ServerState.PROBATION, f"{server}#0")

    def stopped(self, slot: str) -> None:
        self.reclaims[slot] = self._clock()

    def freed(self, slot: str) -> None:
        since = self.reclaims.pop(slot, None)
        if since is None:
            return
        seconds, sums = self._clock() - since, self.reclaimed.get(_server_of(slot))
        sums = sums or ServerCondition()
        self.reclaimed[_server_of(slot)] = ServerCondition(
            reclaims=sums.reclaims + 1,
            reclaim_seconds=sums.reclaim_seconds + seconds,
            worst_reclaim_seconds=max(sums.worst_reclaim_seconds, seconds),
        )

    def condition(self, server: str, seen: float) -> ServerCondition:
        let_back_at, _ = self.quarantine.get(server, (0.0, 0))
        return msgspec.structs.replace(
            self.reclaimed.get(server) or ServerCondition(),
            state=self.held.get(server, (ServerState.SERVING, ""))[0],
            seen_seconds_ago=self._clock() - seen,
            failing_jobs=tuple(self.failing.get(server, ())),
            let_back_in_seconds=max(0.0, let_back_at - self._clock()),
        )

    def forget(self, server: str) -> None:
        for known in (self.held, self.quarantine, self.failing, self.reclaimed):
            known.pop(server, None)
        self.reclaims = {s: at for s, at in self.reclaims.items() if _server_of(s) != server}


def _server_of(slot: str) -> str:
    return slot.rsplit("#", 1)[0]
