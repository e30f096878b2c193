"""The lender: lets parked Jobs give way where nobody comes for them, or another Run starves.

- Owns no state; who is parked, who waits and when a trainer was heard of stand in the queues.
- A Job that gives way is queued again, first in its Run and not charged; nothing of it is lost but
  the attempt.
- Two lenders may run: each move is atomic.
"""

import threading
from collections.abc import Callable

import structlog

from orchestrator.queues.conclusions import Moved
from orchestrator.queues.leases import Leases
from rollyard.errors import QueueUnavailable

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks: how late a Run that waits may get the Slots of one that nobody drives."""


class Lender:
    def __init__(self, leases: Leases, push: Callable[[Moved], None]) -> None:
        """`push` tells agent servers what became of Leases."""
        self._leases = leases
        self._push = push

    def run(self, stopping: threading.Event) -> None:
        """Lend until `stopping` is set."""
        while not stopping.wait(LOOK_SECONDS):
            try:
                ended = self._leases.lend()
            except QueueUnavailable as error:
                log.warning("lender_waits_for_redis", error=error.message)
                continue
            if ended:
                log.info("parked_jobs_gave_way", jobs=len(ended), first=ended[0].job_id)
                self._push(Moved(stop=ended))
