"""What the three queues in this process hold, and the moves that all of them are made of.

One lock guards everything; methods whose names begin with an underscore are called with it held.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from orchestrator.events import AnyEvent, AttemptEnded, Ending, JobDied, PromptFed, run_of
from orchestrator.queues.accounts import row_of
from orchestrator.queues.memory_health import ServerHealth
from orchestrator.queues.memory_run import RunRecord
from orchestrator.queues.operations import DEFAULT_QUARANTINE, QuarantineSettings
from rollyard.errors import NotFound
from rollyard.messages import AgentServer, AttemptOutcome, Lease, LLMNode, Prompt, Receipt

ENDINGS = {
    AttemptOutcome.LOST: Ending.FAILED,
    AttemptOutcome.FAILED: Ending.FAILED,
    AttemptOutcome.CANCELLED: Ending.STOPPED,
    AttemptOutcome.STOPPED: Ending.STOPPED,
}
"""Which attempts took a Slot's time in vain; one that was given back never ran."""


class MemoryYard:
    def __init__(
        self,
        *,
        lease_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        quarantine: QuarantineSettings = DEFAULT_QUARANTINE,
    ) -> None:
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._runs: dict[str, RunRecord] = {}
        self._waiting: deque[str] = deque()
        self._free: deque[str] = deque()
        self._spare: deque[str] = deque()
        self._slots: dict[str, Lease | None] = {}
        """Slot -> None when free, the Lease that occupies it otherwise; absent: suspended."""
        self._servers: dict[str, AgentServer] = {}
        self._seen: dict[str, float] = {}
        self._leases: dict[str, float] = {}
        self._health = ServerHealth(quarantine, clock)
        self._llm_nodes: dict[str, LLMNode] = {}
        self._weights = 0
        self._ran = 0.0
        """Seconds that attempts, of all Runs, have spent on their Slots."""
        self._work = False
        self._events: deque[str] = deque()

    def tell(self, run_id: str, event: AnyEvent) -> None:
        with self._changed:
            events = self._record(run_id).events
            events.append(event)
            if len(events) == 1:
                self._events.append(run_id)
            self._changed.notify_all()

    def _charge(self, lease: Lease, outcome: AttemptOutcome, reason: str) -> Receipt:
        record = self._runs[run_of(lease.job_id)]
        self._note(lease, outcome, reason)
        if record.charge(lease, self._clock(), outcome, reason):
            self.tell(record.settings.run_id, JobDied(job_id=lease.job_id, reason=reason))
            return Receipt.DEAD
        self._requeue(lease.job_id)
        return Receipt.REQUEUED

    def _hand_back(self, lease: Lease, outcome: AttemptOutcome, reason: str) -> None:
        self._note(lease, outcome, reason)
        self._requeue(lease.job_id)

    def _note(self, lease: Lease, outcome: AttemptOutcome, reason: str) -> None:
        """An attempt ended that was not accepted."""
        record, at = self._runs[run_of(lease.job_id)], self._clock()
        seconds = record.end_stay(lease.job_id, at)
        self._ran += seconds
        record.note(lease, at, outcome, reason)
        if outcome in ENDINGS:
            ended = AttemptEnded(job_id=lease.job_id, seconds=seconds, ending=ENDINGS[outcome])
            self.tell(record.settings.run_id, ended)

    def _ran_till_now(self) -> float:
        """Seconds that attempts have spent on their Slots, also those that still run."""
        at = self._clock()
        running = (self._runs[run_of(job)].stays[job].seconds(at) for job in self._leases)
        return self._ran + sum(running)

    def _feed(self, record: RunRecord, prompt: Prompt) -> bool:
        """Make a Prompt a Group; False if it was fed before."""
        if prompt.prompt_id in record.fed:
            return False
        record.queue(prompt)
        row = row_of(prompt, record.settings)
        fed = PromptFed(group_id=prompt.prompt_id, row=row, tried=record.rows.get(row))
        self.tell(record.settings.run_id, fed)
        self._offer(record.settings.run_id)
        return True

    def _requeue(self, job: str) -> None:
        self._runs[run_of(job)].tasks.appendleft(job)
        self._offer(run_of(job))

    def _offer(self, run_id: str) -> None:
        record = self._runs[run_id]
        if record.open and record.tasks:
            if run_id not in self._waiting:
                self._waiting.append(run_id)
            self._wake_dispatcher()

    def _free_slot(self, slot: str) -> None:
        self._health.freed(slot)
        self._slots.pop(slot, None)
        if not self._may_offer(slot):
            return
        self._offer_slot(slot)
        self._wake_dispatcher()

    def _may_offer(self, slot: str) -> bool:
        server = self._servers[server_of(slot)]
        return self._health.may_offer(slot, has_room=self._load(server) < server.slots)

    def _offer_slot(self, slot: str) -> None:
        server = self._servers[server_of(slot)]
        self._slots[slot] = None
        offered = sum(server_of(each) == server.server_id for each in self._free)
        fits = offered + self._load(server) < server.slots
        (self._free if fits else self._spare).append(slot)

    def _load(self, server: AgentServer) -> int:
        """Places of the server that are occupied."""
        return sum(bool(self._slots.get(place)) for place in places_of(server))

    def _many_jobs_wait(self) -> bool:
        jobs = sum(len(self._runs[run_id].tasks) for run_id in self._waiting)
        return jobs >= sum(server.ahead for server in self._servers.values())

    def _wake_dispatcher(self) -> None:
        self._work = True
        self._changed.notify_all()

    def _news(self, run_id: str) -> None:
        self._runs[run_id].news = True
        self._changed.notify_all()

    def _holds(self, lease: Lease) -> bool:
        record = self._runs.get(run_of(lease.job_id))
        return record is not None and record.holders.get(lease.job_id) == lease

    def _end_lease(self, job: str) -> Lease | None:
        self._leases.pop(job, None)
        return self._runs[run_of(job)].holders.pop(job, None)

    def _forget_server(self, server_id: str) -> list[Lease]:
        server = self._servers.pop(server_id, None)
        self._seen.pop(server_id, None)
        if server is None:
            return []
        self._withdraw(server_id)
        self._health.forget(server_id)
        held = []
        for slot in places_of(server):
            lease = self._slots.pop(slot, None)
            if lease is not None and self._holds(lease):
                self._end_lease(lease.job_id)
                held.append(lease)
        return held

    def _withdraw(self, server_id: str) -> None:
        """Take the free Slots of a server off the lists."""
        for places in (self._free, self._spare):
            for slot in [slot for slot in places if server_of(slot) == server_id]:
                places.remove(slot)
                self._slots.pop(slot, None)

    def _record(self, run_id: str) -> RunRecord:
        if run_id not in self._runs:
            raise NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")
        return self._runs[run_id]


def places_of(server: AgentServer) -> list[str]:
    """One for each Slot and one for each Job ahead; `_servers.lua` says what they are for."""
    return [f"{server.server_id}#{index}" for index in range(server.slots + server.ahead)]


def server_of(slot: str) -> str:
    return slot.rsplit("#", 1)[0]
