"""Jobs in the in-memory queues: leased, handed back, expired, reported."""

from collections import deque
from collections.abc import Sequence

from orchestrator.events import ResultAccepted, run_of
from orchestrator.queues.accounts import oldest_version, seconds_on_slot
from orchestrator.queues.memory_run import RunRecord
from orchestrator.queues.memory_stay import Stay
from orchestrator.queues.memory_yard import MemoryYard, server_of
from rollyard.messages import (
    Assignment,
    AttemptOutcome,
    Lease,
    Outcome,
    Receipt,
    Reported,
    Result,
)


class MemoryJobs(MemoryYard):
    def lease(self, most: int = 1) -> list[Assignment]:
        leased: list[Assignment] = []
        passed_over: list[tuple[str, deque[str]]] = []
        in_vain: set[str] = set()
        with self._changed:
            while len(leased) < most and self._waiting:
                places = self._places_to_take()
                if not places:
                    break
                slot = places.popleft()
                server = server_of(slot)
                assignment = None if server in in_vain else self._lease_next(slot)
                if assignment is None:  # the Jobs that wait were lost with its server
                    in_vain.add(server)
                    passed_over.append((slot, places))
                else:
                    leased.append(assignment)
            for slot, places in reversed(passed_over):
                places.appendleft(slot)
        return leased

    def _places_to_take(self) -> deque[str]:
        """The list of the Slot that comes next; empty if there is none."""
        return self._spare if not self._free and self._many_jobs_wait() else self._free

    def _lease_next(self, slot: str) -> Assignment | None:
        """Lease the next Job in turn, that its server may have, to a Slot that is on no list."""
        job = self._next_job(server_of(slot))
        if job is None:
            return None
        run_id = run_of(job)
        record = self._runs[run_id]
        record.attempts[job] += 1
        attempt = record.attempts[job]
        lease = Lease(job_id=job, attempt=attempt, server_id=server_of(slot), slot=slot)
        record.holders[job] = lease
        self._slots[slot] = lease
        record.stays[job] = Stay(leased_at=self._clock(), weight_version=self._weights)
        self._leases[job] = self._clock() + self._lease_seconds
        self._news(run_id)
        return Assignment(job=record.job(job), lease=lease)

    def _next_job(self, server_id: str) -> str | None:
        for _ in range(len(self._waiting)):
            run_id = self._waiting.popleft()
            record = self._runs[run_id]
            job = next((j for j in record.tasks if not self._elsewhere(record, j, server_id)), None)
            if job is not None:
                record.tasks.remove(job)
            if record.tasks:
                self._waiting.append(run_id)
            if job is not None:
                return job
        return None

    def _elsewhere(self, record: RunRecord, job: str, server_id: str) -> bool:
        """Whether the Job was lost with this server while another is not to blame yet."""
        lost = record.lost.get(job, ())
        return server_id in lost and any(
            other not in lost and self._health.takes_jobs(other) for other in self._servers
        )

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
            return min([self._lease_seconds / 4, *(deadline - at for deadline in deadlines)])

    def renew(self) -> None:
        with self._changed:
            at = self._clock()
            self._seen = dict.fromkeys(self._seen, at)
            self._leases = dict.fromkeys(self._leases, at + self._lease_seconds)

    def wait_for_work(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._work, seconds)
            self._work = False

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
        if more and self._may_offer(slot):
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

    def _accept(self, record: RunRecord, result: Result) -> Receipt:
        assert result.reward is not None
        job, version = result.lease.job_id, oldest_version(result)
        if version is None:
            version = record.stays[job].weight_version
        stayed = record.end_stay(job, self._clock())
        seconds = seconds_on_slot(result) or stayed
        self._ran += seconds
        record.accept(result, self._clock())
        self._health.succeeded(result.lease.server_id)
        accepted = ResultAccepted(
            job_id=job, reward=result.reward, weight_version=version, seconds=seconds
        )
        self.tell(record.settings.run_id, accepted)
        return Receipt.ACCEPTED
