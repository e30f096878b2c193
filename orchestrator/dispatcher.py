"""The dispatcher: sends the next Jobs to the next free Slots, as long as there are both.

- Sleeps in a blocking wait; the queues wake it when a Job or a Slot arrives.
- Where Slots are left over, it takes Jobs back that wait on another server for a Slot there.
- Owns the sets of servers that it failed to reach, and that it is taking Jobs back from.
- A Lease is written before its Job is sent: a crash in between costs the time until the Lease
  expires, never the Job. Two dispatchers may run.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from orchestrator.queues.leases import Leases
from orchestrator.queues.servers import Servers
from rollyard.errors import KINDS, AgentUnreachable, RollyardError
from rollyard.messages import Assignment, Lease, Outcome, Refusal, Result, Taken

log = structlog.get_logger()

MAX_AT_ONCE = 64
"""Jobs leased in one move; those for one server are sent to it together."""
AWAY = (409, 503)
"""HTTP statuses of a server that is full, draining or away: another server may take the Job."""


class Dispatcher:
    def __init__(
        self,
        leases: Leases,
        servers: Servers,
        send: Callable[[str, Sequence[Assignment]], Taken],
        senders: ThreadPoolExecutor,
        changed: Callable[[], None],
        recall: Callable[[str, int], Sequence[Lease]] = lambda server_id, jobs: (),
    ) -> None:
        self._leases = leases
        self._servers = servers
        self._send = send
        self._senders = senders
        self._changed = changed
        self._recall = recall
        self._unreached: set[str] = set()
        self._recalling: set[str] = set()

    def run(self, stopping: threading.Event) -> None:
        """Dispatch until `stopping` is set."""
        while not stopping.is_set():
            if not self.step():
                self.recall()
                self._leases.wait_for_work(seconds=5)

    def step(self) -> bool:
        """Lease Jobs and send them to their servers. False if either queue was empty."""
        leased = self._leases.lease(MAX_AT_ONCE)
        if not leased:
            return False
        self._changed()
        loads: dict[str, list[Assignment]] = defaultdict(list)
        for assignment in leased:
            loads[assignment.lease.server_id].append(assignment)
        for server_id, load in loads.items():
            self._senders.submit(self._deliver, server_id, load)
        return True

    def recall(self) -> None:
        """Take back Jobs ahead for which there are free Slots elsewhere."""
        for server_id, jobs in self._leases.recalls().items():
            if server_id not in self._recalling:  # once at a time, or more would come than can run
                self._recalling.add(server_id)
                self._senders.submit(self._take_back, server_id, jobs)

    def _take_back(self, server_id: str, jobs: int) -> None:
        try:
            for lease in self._recall(server_id, jobs):
                self._leases.give_back(lease, "recalled for a free slot of another server")
        except RollyardError as error:  # they start there, or are handed back by their server
            log.info("not_recalled", server_id=server_id, error=str(error))
        finally:
            self._recalling.discard(server_id)

    def _deliver(self, server_id: str, load: list[Assignment]) -> None:
        try:
            refused = self._send(server_id, load).refused
            self._note(server_id, reached=True)
        except RollyardError as error:
            self._note(server_id, reached=not isinstance(error, AgentUnreachable))
            if len(load) > 1 and error.status not in AWAY:  # one bad Job may fail all: send singly
                for assignment in load:
                    self._deliver(server_id, [assignment])
                return
            refused = tuple(
                Refusal(lease=each.lease, code=error.code, message=error.message) for each in load
            )
        for refusal in refused:
            log.warning("job_not_delivered", job_id=refusal.lease.job_id, error=refusal.message)
            self._undo(refusal)

    def _note(self, server_id: str, *, reached: bool) -> None:
        """Note whether the server was reached."""
        # A server that calls us but cannot be called would be leased the same Jobs for ever.
        try:
            if not reached:
                self._unreached.add(server_id)
                self._servers.unreached(server_id)
            elif server_id in self._unreached:
                self._servers.reached(server_id)
                self._unreached.discard(server_id)
        except RollyardError as error:  # the next delivery notes it
            log.warning("reach_not_noted", server_id=server_id, error=str(error))

    def _undo(self, refusal: Refusal) -> None:
        lease: Lease = refusal.lease
        try:
            if KINDS.get(refusal.code, RollyardError).status in AWAY:
                self._leases.give_back(lease, refusal.message)
            else:  # it would be refused again: charge the attempt, so that retries come to an end
                failed = Result(lease=lease, outcome=Outcome.INFRA_FAILED, error=refusal.message)
                self._leases.report([failed])
        except RollyardError as lost:  # the Lease expires, and the Job is requeued
            log.warning("job_left_to_expire", job_id=lease.job_id, error=str(lost))
