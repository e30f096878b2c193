"""History of busy Slots, for people, not for decisions.

- It is bounded and in memory; a restart begins a new one.
- When full, it drops every second point, so that it always covers the whole time since the start.
"""

import threading
import time

from orchestrator.queues.servers import Servers
from rollyard.messages import Occupancy, OccupancyPoint

MAX_POINTS = 8192


class OccupancyHistory:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._points: list[OccupancyPoint] = []
        self._dirty = threading.Event()

    def changed(self) -> None:
        """Note that some Slot was leased or freed."""
        self._dirty.set()

    def run(self, stopping: threading.Event, resolution_seconds: float = 0.1) -> None:
        """Record changes until `stopping` is set, at most one per `resolution_seconds`."""
        self._dirty.set()  # an outage of Redis may have kept the last change from being recorded
        while not stopping.wait(resolution_seconds):
            if self._dirty.wait(5):  # with a timeout, so that `stopping` is noticed
                self._dirty.clear()
                self.record()

    def record(self) -> None:
        busy = self._servers.busy_slots()
        if self._points and self._points[-1].busy == busy:
            return
        self._points.append(OccupancyPoint(at=time.time(), busy=busy))
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]

    def read(self) -> Occupancy:
        slots = {server.server_id: server.slots for server in self._servers.registered()}
        return Occupancy(slots=slots, points=tuple(self._points))
