"""The reaper: takes back the Jobs of silent agent servers.

- Owns no state; Leases live in the queues, in the queues' time.
- At its start and after an outage of Redis nobody is judged by a silence that was ours.
- Sleeps until the next Lease can expire, or for a quarter of a Lease. Two reapers may run: each
  move is atomic.
"""

import threading

import structlog

from orchestrator.queues.redis_queues import Queues
from rollyard.errors import QueueUnavailable

log = structlog.get_logger()

SHORTEST_NAP_SECONDS = 0.05


class Reaper:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def run(self, stopping: threading.Event) -> None:
        """Reap until `stopping` is set."""
        nap, deaf = SHORTEST_NAP_SECONDS, True
        while not stopping.wait(nap):
            try:
                if deaf:
                    self._queues.renew()
                    deaf = False
                nap = max(SHORTEST_NAP_SECONDS, self._queues.expire())
            except QueueUnavailable as error:
                log.warning("reaper_waits_for_redis", error=error.message)
                nap, deaf = 0.5, True
