"""The dispatcher: sends the next Job to the next free Slot, as long as there are both.

- Sleeps in a blocking wait; the queues wake it when a Job or a Slot arrives.
- Owns no state: a Lease is written before its Job is sent, so that a crash between the two costs
  the time until the Lease expires, never the Job. Two dispatchers may run.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from orchestrator.queues.contract import Queues
from rollyard.errors import QueueUnavailable, RollyardError
from rollyard.messages import Assignment, Lease, Outcome, Result

log = structlog.get_logger()


class Dispatcher:
    def __init__(
        self,
        queues: Queues,
        send: Callable[[Assignment], None],
        senders: ThreadPoolExecutor,
        changed: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._send = send
        self._senders = senders
        self._changed = changed

    def run(self, stopping: threading.Event) -> None:
        """Dispatch until `stopping` is set."""
        while not stopping.is_set():
            try:
                if not self.step():
                    self._queues.wait_for_work(seconds=5)
            except QueueUnavailable as error:
                log.warning("dispatcher_waits_for_redis", error=error.message)
                stopping.wait(0.5)

    def step(self) -> bool:
        """Start one Job on one Slot; False if either queue is empty."""
        assignment = self._queues.lease()
        if assignment is None:
            return False
        self._changed()
        self._senders.submit(self._deliver, assignment)
        return True

    def _deliver(self, assignment: Assignment) -> None:
        lease = assignment.lease
        try:
            self._send(assignment)
        except RollyardError as error:
            log.warning("job_not_delivered", job_id=lease.job_id, error=str(error))
            self._undo(lease, error)

    def _undo(self, lease: Lease, error: RollyardError) -> None:
        try:
            if error.status in (409, 503):  # the server is full, draining or away
                self._queues.give_back(lease, error.message)
            else:  # it will refuse this Job again: charge it, so that it cannot circle forever
                self._queues.report(
                    Result(lease=lease, outcome=Outcome.INFRA_FAILED, error=error.message)
                )
        except RollyardError as lost:  # the Lease expires, and the Job waits again
            log.warning("job_left_to_expire", job_id=lease.job_id, error=str(lost))
