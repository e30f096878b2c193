"""The three queues in this process: for tests and simulations. Nothing survives the process.

- One lock guards everything; each method is one atomic move, like a Redis script.
- Time is `clock`, so that a test or a simulation decides when a Lease expires.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from orchestrator.events import AnyEvent, ResultAccepted, run_of
from orchestrator.queues.contract import (
    MOST_QUEUED_JOBS,
    Conclusion,
    Run,
    backlog_is_full,
    run_is_closed,
)
from orchestrator.queues.memory_operations import MemoryOperations
from orchestrator.queues.memory_run import RunRecord, copied
from orchestrator.queues.memory_servers import MemoryServers
from orchestrator.queues.memory_yard import server_of
from orchestrator.sampler import AnyDecision, Deliver, Drop, Hold, Open, Recycle
from rollyard.errors import Conflict
from rollyard.messages import (
    Assignment,
    AttemptOutcome,
    Group,
    Lease,
    Outcome,
    Prompt,
    Receipt,
    Reported,
    Result,
    RunSettings,
)


class MemoryQueues(MemoryServers, MemoryOperations):
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

    def submit(
        self, run_id: str, prompts: Sequence[Prompt], *, most_queued: int = MOST_QUEUED_JOBS
    ) -> list[bool]:
        with self._changed:
            record = self._record(run_id)
            if record.sampler.closed:
                raise run_is_closed(run_id)
            if len(record.tasks) >= most_queued:
                raise backlog_is_full(run_id, len(record.tasks))
            return [self._feed(record, prompt) for prompt in prompts]

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        with self._changed:
            return self._record(run_id).batch(batch_id)

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        with self._changed:
            record = self._record(run_id)
            self._changed.wait_for(lambda: record.news, seconds)
            record.news = False

    # Dispatch

    def lease(self, most: int = 1) -> list[Assignment]:
        with self._changed:
            paired = itertools.takewhile(bool, (self._pair() for _ in range(most)))
            return [assignment for assignment in paired if assignment is not None]

    def _pair(self) -> Assignment | None:
        slot = self._take_slot() if self._waiting else None
        if slot is None:
            return None
        assignment = self._lease_next(slot)
        if assignment is None:
            self._offer_slot(slot, deque.appendleft)
        return assignment

    def _take_slot(self) -> str | None:
        if self._free:
            return self._free.popleft()
        return self._spare.popleft() if self._spare and self._many_jobs_wait() else None

    def _lease_next(self, slot: str) -> Assignment | None:
        """Lease the next Job in turn to a Slot that is on no list."""
        while self._waiting:
            run_id = self._waiting.popleft()
            record = self._runs[run_id]
            if not record.tasks:
                continue
            job = record.tasks.popleft()
            record.attempts[job] += 1
            attempt = record.attempts[job]
            lease = Lease(job_id=job, attempt=attempt, server_id=server_of(slot), slot=slot)
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

    def report(self, results: Sequence[Result], *, more: bool = False) -> list[Reported]:
        with self._changed:
            return [self._report(result, more) for result in results]

    def _report(self, result: Result, more: bool) -> Reported:
        slot = result.lease.slot
        occupied = self._slots.get(slot) == result.lease
        receipt = self._settle(result)
        following = None
        if receipt is Receipt.DUPLICATE and more:
            following = self._held_by(slot)
        elif occupied:
            following = self._pass_on(slot, more and receipt is Receipt.ACCEPTED)
        return Reported(receipt=receipt, assignment=following)

    def _pass_on(self, slot: str, more: bool) -> Assignment | None:
        """Free the Slot of an attempt that occupied it; returns the Job that it takes at once."""
        server = self._servers[server_of(slot)]
        following = None
        if more and self._health.may_offer(slot):
            is_ahead = self._load(server) > server.slots
            if not is_ahead or self._many_jobs_wait():
                following = self._lease_next(slot)
        if following is None:
            self._free_slot(slot)
        return following

    def _held_by(self, slot: str) -> Assignment | None:
        lease = self._slots.get(slot)
        if lease is None or not self._holds(lease):
            return None
        return Assignment(job=self._runs[run_of(lease.job_id)].job(lease.job_id), lease=lease)

    def _settle(self, result: Result) -> Receipt:
        """What becomes of the Job; the Slot is the caller's."""
        lease = result.lease
        record = self._runs.get(run_of(lease.job_id))
        if record is None or not self._holds(lease):
            stored = record.results.get(lease.job_id) if record else None
            if stored is not None and stored.lease.attempt == lease.attempt:
                return Receipt.DUPLICATE
            if record is not None and result.outcome is not Outcome.CANCELLED:
                record.counts["results_refused"] += 1
            return Receipt.STALE
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
