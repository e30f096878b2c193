"""Kills and pauses of agent servers that have work, by the clock, and their return."""

import heapq
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator

from chaos.cluster import Cluster
from chaos.faults import AgentFault, Kind, agent_faults
from chaos.history import History
from chaos.observer import WATCH_SECONDS, Observer
from chaos.settings import ChaosSettings

PATIENCE_SECONDS = 3.0
"""Time that a fault waits for its agent server to have work: hitting an idle one proves little."""


class AgentHits:
    def __init__(
        self, settings: ChaosSettings, cluster: Cluster, observer: Observer, history: History
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._observer = observer
        self._history = history
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._away: dict[int, Callable[[], None]] = {}
        """Index of an agent server that is down -> function that brings it back."""

    def run(self, calm: threading.Event) -> None:
        """Hit agent servers until `calm` is set, then bring all of them back."""
        settings = self._settings
        self._next(agent_faults(settings, Kind.KILL_AGENT, settings.agent_kill_every_seconds))
        self._next(agent_faults(settings, Kind.PAUSE_AGENT, settings.agent_pause_every_seconds))
        while not calm.wait(max(0.0, self._due[0][0] - time.monotonic())):
            heapq.heappop(self._due)[2]()
        for index in list(self._away):
            self._bring_back(index)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))

    def _next(self, faults: Iterator[AgentFault]) -> None:
        fault = next(faults)

        due = time.monotonic() + fault.after_seconds

        def hit() -> None:
            idle = f"agent-{fault.index}" not in self._observer.busy
            if idle and time.monotonic() < due + PATIENCE_SECONDS:
                self._after(WATCH_SECONDS, hit)
                return
            if fault.index not in self._away:
                self._hit(fault)
            self._next(faults)

        self._after(fault.after_seconds, hit)

    def _hit(self, fault: AgentFault) -> None:
        index, server_id = fault.index, f"agent-{fault.index}"
        self._history.write(fault.kind, server_id=server_id)
        if fault.kind is Kind.KILL_AGENT:
            self._cluster.kill_agent(index)
            self._observer.killed(server_id)
            self._away[index] = lambda: self._cluster.start_agent(index)
            self._after(self._settings.agent_away_seconds, lambda: self._bring_back(index))
        else:
            self._cluster.signal_agent(index, signal.SIGSTOP)
            self._away[index] = lambda: self._cluster.signal_agent(index, signal.SIGCONT)
            self._after(self._settings.pause_seconds, lambda: self._bring_back(index))

    def _bring_back(self, index: int) -> None:
        self._away.pop(index)()
