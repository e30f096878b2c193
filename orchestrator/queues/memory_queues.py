"""The three queues in this process: for tests and simulations. Nothing survives the process.

- One lock guards everything; each method is one atomic move, like a Redis script.
- Time is `clock`, so that a test or a simulation decides when a Lease expires.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from orchestrator.events import (
    AnyEvent,
    JobDied,
    PromptFed,
    ResultAccepted,
    run_of,
)
from orchestrator.queues.contract import Conclusion, Run
from orchestrator.queues.memory_operations import MemoryOperations
from orchestrator.queues.memory_run import RunRecord, copied
from orchestrator.queues.memory_servers import ServerHealth
from orchestrator.queues.operations import DEFAULT_QUARANTINE, QuarantineSettings
from orchestrator.sampler import (
    AnyDecision,
    Deliver,
    Drop,
    Hold,
    Open,
    Recycle,
)
from rollyard.errors import Conflict, NotFound, StaleAttempt
from rollyard.messages import (
    AgentServer,
    Assignment,
    AttemptOutcome,
    Group,
    Heartbeat,
    HeartbeatReply,
    Lease,
    LLMNode,
    Outcome,
    Prompt,
    Receipt,
    Reported,
    Result,
    RunSettings,
)


class MemoryQueues(MemoryOperations):
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
        self._slots: dict[str, Lease | None] = {}
        """Slot -> None when free, the Lease that occupies it otherwise; absent: suspended."""
        self._servers: dict[str, AgentServer] = {}
        self._seen: dict[str, float] = {}
        self._leases: dict[str, float] = {}
        self._health = ServerHealth(quarantine, clock)
        self._llm_nodes: dict[str, LLMNode] = {}
        self._work = False
        self._events: deque[str] = deque()

    # Runs and their trainer

    def create_run(self, settings: RunSettings) -> None:
        with self._changed:
            record = self._runs.setdefault(settings.run_id, RunRecord(settings))
            if record.settings != settings:
                raise Conflict(
                    f"run {settings.run_id!r} exists with other settings",
                    fix="choose another run_id, or the settings that it was created with",
                )

    def run_ids(self) -> list[str]:
        with self._changed:
            return sorted(self._runs)

    def run(self, run_id: str) -> Run:
        with self._changed:
            return self._record(run_id).view()

    def submit(self, run_id: str, prompt: Prompt) -> bool:
        with self._changed:
            record = self._record(run_id)
            if prompt.prompt_id in record.fed:
                return False
            record.queue(prompt)
            self.tell(run_id, PromptFed(group_id=prompt.prompt_id))
            self._offer(run_id)
            return True

    def tell(self, run_id: str, event: AnyEvent) -> None:
        with self._changed:
            self._record(run_id).events.append(event)
            self._events.append(run_id)
            self._changed.notify_all()

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        with self._changed:
            return self._record(run_id).batch(batch_id)

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        with self._changed:
            record = self._record(run_id)
            self._changed.wait_for(lambda: record.news, seconds)
            record.news = False

    # Servers

    def register(self, server: AgentServer) -> None:
        with self._changed:
            trouble = self._health.quarantine.get(server.server_id)
            for lease in self._forget_server(server.server_id):
                reason = f"agent server {server.server_id} restarted while it ran the job"
                self._charge(lease, AttemptOutcome.LOST, reason)
            if trouble is not None:
                self._health.return_from(server.server_id, trouble)
            self._servers[server.server_id] = server
            self._seen[server.server_id] = self._clock()
            for slot in _slots(server):
                self._free_slot(slot)
            for run_id in self._runs:
                self._news(run_id)

    def leave(self, server_id: str) -> None:
        with self._changed:
            for lease in self._forget_server(server_id):
                self._hand_back(lease, AttemptOutcome.GIVEN_BACK, f"agent server {server_id} left")

    def servers(self) -> list[AgentServer]:
        with self._changed:
            return [self._servers[server_id] for server_id in sorted(self._servers)]

    def busy_slots(self) -> dict[str, int]:
        with self._changed:
            return {
                server.server_id: sum(bool(self._slots.get(slot)) for slot in _slots(server))
                for server in self._servers.values()
            }

    def free_slots(self) -> int:
        with self._changed:
            return len(self._free)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        with self._changed:
            server = self._servers.get(heartbeat.server_id)
            if server is None:
                return HeartbeatReply(known=False)
            self._seen[server.server_id] = self._clock()
            stop = []
            for lease in heartbeat.leases:
                if self._holds(lease):
                    self._leases[lease.job_id] = self._clock() + self._lease_seconds
                else:
                    stop.append(lease)
            running = {lease.slot for lease in heartbeat.leases}
            for slot in _slots(server):
                if slot not in running and self._is_lost(slot):
                    self._free_slot(slot)
            occupied = any(self._slots.get(slot) for slot in _slots(server))
            drained = not occupied and not running and self._health.is_draining(server.server_id)
            return HeartbeatReply(known=True, drained=drained, stop=tuple(stop))

    def _is_lost(self, slot: str) -> bool:
        if slot not in self._slots:
            return True
        lease = self._slots[slot]
        return lease is not None and not self._holds(lease)

    def register_llm_node(self, node: LLMNode) -> None:
        with self._changed:
            self._llm_nodes[node.node_id] = node

    def llm_nodes(self) -> list[LLMNode]:
        with self._changed:
            return [self._llm_nodes[node_id] for node_id in sorted(self._llm_nodes)]

    # Dispatch

    def lease(self) -> Assignment | None:
        with self._changed:
            if not self._waiting or not self._free:
                return None
            slot = self._free.popleft()
            assignment = self._lease_next(slot)
            if assignment is None:
                self._free.appendleft(slot)
            return assignment

    def _lease_next(self, slot: str) -> Assignment | None:
        """Lease the next Job in turn to a Slot that is on no list."""
        while self._waiting:
            run_id = self._waiting.popleft()
            record = self._runs[run_id]
            if not record.tasks:
                continue
            job = record.tasks.popleft()
            record.attempts[job] += 1
            server_id = slot.rsplit("#", 1)[0]
            lease = Lease(job_id=job, attempt=record.attempts[job], server_id=server_id, slot=slot)
            record.holders[job] = lease
            self._slots[slot] = lease
            record.leased_at[job] = self._clock()
            self._leases[job] = self._clock() + self._lease_seconds
            self._offer(run_id)
            self._news(run_id)
            return Assignment(job=record.job(job), lease=lease)
        return None

    def give_back(self, lease: Lease, reason: str = "") -> None:
        with self._changed:
            if self._slots.get(lease.slot) == lease:
                del self._slots[lease.slot]
            if self._holds(lease):
                self._end_lease(lease.job_id)
                self._hand_back(lease, AttemptOutcome.GIVEN_BACK, reason)

    def expire(self) -> float:
        with self._changed:
            at = self._clock()
            for server_id in [
                s for s, seen in self._seen.items() if seen + self._lease_seconds <= at
            ]:
                for lost in self._forget_server(server_id):
                    reason = f"agent server {server_id} fell silent while it ran the job"
                    self._charge(lost, AttemptOutcome.LOST, reason)
            for job in [job for job, expiry in self._leases.items() if expiry <= at]:
                lease = self._end_lease(job)
                if lease is not None:
                    self._slots.pop(lease.slot, None)
                    server = f"agent server {lease.server_id}"
                    reason = f"{server} stopped naming the job in its heartbeats"
                    self._charge(lease, AttemptOutcome.LOST, reason)
            deadlines = [*self._leases.values()]
            deadlines += [seen + self._lease_seconds for seen in self._seen.values()]
            return min([self._lease_seconds, *(deadline - at for deadline in deadlines)])

    def renew(self) -> None:
        with self._changed:
            at = self._clock()
            self._seen = dict.fromkeys(self._seen, at)
            self._leases = dict.fromkeys(self._leases, at + self._lease_seconds)

    def wait_for_work(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._work, seconds)
            self._work = False

    # Results

    def report(self, result: Result, *, more: bool = False) -> Reported:
        with self._changed:
            slot = result.lease.slot
            frees = self._slots.get(slot) == result.lease
            try:
                receipt = self._settle(result)
            except StaleAttempt:
                if frees:
                    self._free_slot(slot)
                raise
            if receipt is Receipt.DUPLICATE and more:
                return Reported(receipt=receipt, assignment=self._held_by(slot))
            if not frees:
                return Reported(receipt=receipt)
            if more and receipt is Receipt.ACCEPTED and self._health.may_offer(slot):
                next_job = self._lease_next(slot)
                if next_job is not None:
                    return Reported(receipt=receipt, assignment=next_job)
            self._free_slot(slot)
            return Reported(receipt=receipt)

    def _held_by(self, slot: str) -> Assignment | None:
        lease = self._slots.get(slot)
        if lease is None or not self._holds(lease):
            return None
        return Assignment(job=self._runs[run_of(lease.job_id)].job(lease.job_id), lease=lease)

    def _settle(self, result: Result) -> Receipt:
        """What becomes of the Job; the Slot is the caller's."""
        with self._changed:
            lease = result.lease
            record = self._runs.get(run_of(lease.job_id))
            if record is None or not self._holds(lease):
                stored = record.results.get(lease.job_id) if record else None
                if stored is not None and stored.lease.attempt == lease.attempt:
                    return Receipt.DUPLICATE
                raise StaleAttempt(f"attempt {lease.attempt} of job {lease.job_id} is not leased")
            self._end_lease(lease.job_id)
            match result.outcome:
                case Outcome.COMPLETED:
                    return self._accept(record, result)
                case Outcome.CANCELLED:
                    self._hand_back(lease, AttemptOutcome.CANCELLED, result.error)
                    return Receipt.REQUEUED
                case Outcome.INFRA_FAILED:
                    if self._health.failed(lease.server_id, lease.job_id, len(self._servers)):
                        self._withdraw(lease.server_id)
                    return self._charge(lease, AttemptOutcome.FAILED, result.error)

    def wait_for_events(self, seconds: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._events, seconds)
            return self._events.popleft() if self._events else None

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        with self._changed:
            return list(itertools.islice(self._record(run_id).events, most))

    def conclude(self, run_id: str, conclusion: Conclusion) -> list[Lease]:
        with self._changed:
            record = self._record(run_id)
            if record.concluded != conclusion.after:
                raise Conflict(f"somebody else concluded events of run {run_id!r}")
            ended = [
                lease
                for decision in conclusion.decisions
                for lease in self._carry_out(record, decision)
            ]
            for _ in range(conclusion.events):
                record.events.popleft()
            record.concluded += conclusion.events
            record.sampler = copied(conclusion.state)
            self._news(run_id)
            return ended

    # The moves inside; called with the lock held

    def _carry_out(self, record: RunRecord, decision: AnyDecision) -> list[Lease]:
        match decision:
            case Open():
                record.open = True
                self._offer(record.settings.run_id)
            case Hold():
                record.open = False
                if record.settings.run_id in self._waiting:
                    self._waiting.remove(record.settings.run_id)
            case Recycle(job_ids=jobs):
                return self._recycle(record, jobs)
            case Drop(group_ids=groups):
                return [lease for group in groups for lease in self._drop(record, group)]
            case Deliver(batch_id=batch, group_ids=groups):
                record.batches = {batch: groups}
        return []

    def _recycle(self, record: RunRecord, jobs: Iterable[str]) -> list[Lease]:
        ended = []
        for job in reversed(tuple(jobs)):
            lease = self._end_lease(job)
            if lease is not None:
                record.tasks.appendleft(job)
                record.counts["attempts_stopped"] += 1
                why = "nothing of the run is wanted until the next batch"
                record.note(lease, self._clock(), AttemptOutcome.STOPPED, why)
                self._health.stopped(lease.slot)
                ended.append(lease)
            record.counts["recycled"] += job not in record.results
        return ended

    def _drop(self, record: RunRecord, group: str) -> list[Lease]:
        held = [self._end_lease(job) for job in record.jobs(group)]
        ended = [lease for lease in held if lease is not None]
        for lease in ended:
            self._health.stopped(lease.slot)
        record.counts["attempts_stopped"] += len(ended)
        record.counts["dropped"] += len(ended)
        record.forget(group)
        return ended

    def _accept(self, record: RunRecord, result: Result) -> Receipt:
        assert result.reward is not None
        record.accept(result, self._clock())
        self._health.succeeded(result.lease.server_id)
        accepted = ResultAccepted(job_id=result.lease.job_id, reward=result.reward)
        self.tell(record.settings.run_id, accepted)
        return Receipt.ACCEPTED

    def _charge(self, lease: Lease, outcome: AttemptOutcome, reason: str) -> Receipt:
        record = self._runs[run_of(lease.job_id)]
        if record.charge(lease, self._clock(), outcome, reason):
            self.tell(record.settings.run_id, JobDied(job_id=lease.job_id, reason=reason))
            return Receipt.DEAD
        self._requeue(lease.job_id)
        return Receipt.REQUEUED

    def _hand_back(self, lease: Lease, outcome: AttemptOutcome, reason: str) -> None:
        self._runs[run_of(lease.job_id)].note(lease, self._clock(), outcome, reason)
        self._requeue(lease.job_id)

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
        if not self._health.may_offer(slot):
            self._slots.pop(slot, None)
            return
        self._slots[slot] = None
        self._free.append(slot)
        self._wake_dispatcher()

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
        for slot in _slots(server):
            lease = self._slots.pop(slot, None)
            if lease is not None and self._holds(lease):
                self._end_lease(lease.job_id)
                held.append(lease)
        return held

    def _withdraw(self, server_id: str) -> None:
        """Take the free Slots of a server off the server-availability queue."""
        kept: deque[str] = deque()
        for slot in self._free:
            if slot.rsplit("#", 1)[0] == server_id:
                self._slots.pop(slot, None)
            else:
                kept.append(slot)
        self._free = kept

    def _record(self, run_id: str) -> RunRecord:
        if run_id not in self._runs:
            raise NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")
        return self._runs[run_id]


def _slots(server: AgentServer) -> list[str]:
    return [f"{server.server_id}#{index}" for index in range(server.slots)]
