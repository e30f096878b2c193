"""The reaper: takes back the Jobs of silent agent servers, and forgets Runs closed long ago.

- Leases are in the queues, by the store's clock; the reaper owns the time of its last look.
- A server is never judged by a time in which nobody could have heard it: at the reaper's start,
  after an outage of Redis, and after a pause of either, all Leases are renewed.
- It sleeps until the next Lease can expire, or for a quarter of a Lease. Two reapers may run: each
  move is atomic.
"""

import threading

from orchestrator.queues.leases import Leases
from orchestrator.queues.runs import Runs

MIN_DELAY_SECONDS = 0.05
MAX_CLOSED_SECONDS = 7 * 86400.0
"""Time for which the records of a closed Run are kept."""


class Reaper:
    def __init__(self, leases: Leases, runs: Runs) -> None:
        self._leases = leases
        self._runs = runs

    def run(self, stopping: threading.Event) -> None:
        """Reap until `stopping` is set."""
        delay, looked_at = MIN_DELAY_SECONDS, 0.0  # long ago: nobody may have been heard since
        while not stopping.wait(delay):
            look = self._leases.expire(looked_at)
            delay, looked_at = max(MIN_DELAY_SECONDS, look.nap_seconds), look.at
            self._runs.forget_closed(MAX_CLOSED_SECONDS)
