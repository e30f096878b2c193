"""The reaper: takes back the Jobs of agent servers that are silent or have ended, and forgets Runs
closed long ago.

- Leases are in the queues, by the store's clock; the reaper owns the time of its last look.
- A server is never judged by a time in which nobody could have heard it: at the reaper's start,
  after an outage of Redis, and after a pause of either, all Leases are renewed.
- One whose heartbeat is overdue is knocked for: where nobody listens, it has ended, and its Jobs
  need not wait for the end of its Lease.
- It sleeps until the next server is overdue or the next Lease can expire, or for a quarter of a
  Lease. Two reapers may run: each move is atomic.
"""

import threading
from collections.abc import Callable, Iterable

import structlog

from orchestrator.queues.leases import Leases
from orchestrator.queues.runs import Runs

log = structlog.get_logger()

MIN_DELAY_SECONDS = 0.05


class Reaper:
    def __init__(
        self, leases: Leases, runs: Runs, ended: Callable[[Iterable[str]], set[str]]
    ) -> None:
        """`ended` tells which of these agent servers have ended, in much less than a Lease."""
        self._leases = leases
        self._runs = runs
        self._ended = ended

    def run(self, stopping: threading.Event) -> None:
        """Reap until `stopping` is set."""
        delay, looked_at = MIN_DELAY_SECONDS, 0.0  # long ago: nobody may have been heard since
        while not stopping.wait(delay):
            look = self._leases.expire(looked_at)
            if look.overdue and (ended := self._ended(look.overdue)):
                log.warning("agent_servers_ended", server_ids=sorted(ended))
                look = self._leases.expire(look.at, {each: look.overdue[each] for each in ended})
            delay, looked_at = max(MIN_DELAY_SECONDS, look.nap_seconds), look.at
            self._runs.forget_closed()
