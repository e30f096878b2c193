"""The lender: parked Jobs give up their Slots if their trainer left, or another Run needs them.

- A trainer that left gives way at once, a silent one to any Run that waits for a Slot, and one that
  is alive, after a while, to a Run that holds fewer Slots for its weight, and in the end to any.
- Owns no state: parked Jobs, waiting Runs and trainers' signs of life are in the queues.
- A Job that gives way is requeued at the head of its Run and not charged; only its attempt is lost.
- Two lenders may run: each move is atomic.
"""

import threading
from collections.abc import Callable

import structlog

from orchestrator.queues.conclusions import Moved
from orchestrator.queues.leases import Leases

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Interval between searches for parked Jobs that should give way."""


class Lender:
    def __init__(self, leases: Leases, push: Callable[[Moved], None]) -> None:
        """`push` tells agent servers which of their Leases ended."""
        self._leases = leases
        self._push = push

    def run(self, stopping: threading.Event) -> None:
        """Lend until `stopping` is set."""
        while not stopping.wait(LOOK_SECONDS):
            if ended := self._leases.lend():
                log.info("parked_jobs_gave_way", jobs=len(ended), first=ended[0].job_id)
                self._push(Moved(stop=ended))
