"""The reaper: takes back the Jobs of silent agent servers, and forgets Runs closed long ago.

- Leases live in the queues, in the queues' time; it owns when it looked at them last.
- Nobody is judged by a silence that was ours: at its start, after an outage of Redis, and when one
  of the two stood still between two looks, everybody has a Lease to be heard.
- Sleeps until the next Lease can expire, or for a quarter of a Lease. Two reapers may run: each
  move is atomic.
"""

import threading

import structlog

from orchestrator.queues.leases import Leases
from orchestrator.queues.runs import Runs
from rollyard.errors import QueueUnavailable

log = structlog.get_logger()

SHORTEST_NAP_SECONDS = 0.05
MAX_CLOSED_SECONDS = 7 * 86400.0
"""How long one may still ask what became of a Run that was closed."""


class Reaper:
    def __init__(self, leases: Leases, runs: Runs) -> None:
        self._leases = leases
        self._runs = runs

    def run(self, stopping: threading.Event) -> None:
        """Reap until `stopping` is set."""
        nap: float = SHORTEST_NAP_SECONDS
        looked_at: float | None = None
        while not stopping.wait(nap):
            try:
                if looked_at is None:
                    self._leases.renew()
                look = self._leases.expire(looked_at)
                nap, looked_at = max(SHORTEST_NAP_SECONDS, look.nap_seconds), look.at
                self._runs.forget_closed(MAX_CLOSED_SECONDS)
            except QueueUnavailable as error:
                log.warning("reaper_waits_for_redis", error=error.message)
                nap, looked_at = 0.5, None
