"""What the sampler decided, carried out in the in-memory queues: `conclude.lua`'s twin."""

from collections.abc import Callable, Sequence

from orchestrator.queues.accounts import FATES, completed_report
from orchestrator.queues.contract import Conclusion, Moved
from orchestrator.queues.memory_run import RunRecord, copied
from orchestrator.queues.memory_yard import MemoryYard
from orchestrator.sampling.decisions import (
    AnyDecision,
    Cancel,
    Deliver,
    Drop,
    Enqueue,
    Hold,
    Open,
    Park,
    Recycle,
    Remember,
    Restart,
)
from rollyard.errors import Conflict
from rollyard.messages import AttemptOutcome, BatchReport, Lease

Told = dict[str, tuple[str, Lease]]
"""Job -> what its server is to be told of it: the last word counts."""


class MemoryConclusions(MemoryYard):
    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        with self._changed:
            record = self._record(run_id)
            if record.concluded != conclusion.after:
                raise Conflict(f"somebody else concluded events of run {run_id!r}")
            told: Told = {}
            for decision in conclusion.decisions:
                self._carry_out(record, decision, told)
            record.sampler = copied(conclusion.state)
            record.keep_batches(record.sampler.delivered)
            if record.sampler.closed:
                record.rows.clear()
            for _ in range(conclusion.events):
                record.events.popleft()
            if record.events and run_id not in self._events:
                self._events.append(run_id)
            record.concluded += conclusion.events
            record.settled = True
            self._news(run_id)
            return _moved(told)

    # The moves inside; called with the lock held

    def _carry_out(self, record: RunRecord, decision: AnyDecision, told: Told) -> None:
        match decision:
            case Open():
                self._open(record, told)
            case Hold():
                record.open = False
                if record.settings.run_id in self._waiting:
                    self._waiting.remove(record.settings.run_id)
            case Enqueue(job_ids=jobs):
                record.counts["submitted"] += len(jobs)
                self._queue_first(record, jobs, lambda _: True)
            case Park(job_ids=jobs):
                for job in jobs:
                    self._park(record, job, told)
            case Recycle(job_ids=jobs):
                self._queue_first(record, jobs, lambda job: self._recycle(record, job, told))
            case Restart(job_ids=jobs):
                at = self._clock()
                self._queue_first(record, jobs, lambda job: record.withdraw(job, at))
            case Cancel(job_ids=jobs):
                for job in jobs:
                    self._abandon(record, job, told)
            case Drop(group_ids=groups):
                for group in groups:
                    for job in record.jobs(group):
                        self._abandon(record, job, told)
                    record.forget(group)
            case Remember(row=row, tried=tried):
                record.rows[row] = tried
            case Deliver():
                self._deliver(record, decision)

    def _open(self, record: RunRecord, told: Told) -> None:
        record.open = True
        record.window = (self._clock(), self._ran_till_now())
        for job in record.parked():
            record.stays[job].go_on(self._clock())
            told[job] = ("resume", record.holders[job])
        self._offer(record.settings.run_id)

    def _queue_first(
        self, record: RunRecord, jobs: Sequence[str], may_wait: Callable[[str], bool]
    ) -> None:
        """The Jobs wait first, in their order."""
        for job in reversed(jobs):
            if may_wait(job):
                record.tasks.appendleft(job)
        self._offer(record.settings.run_id)

    def _park(self, record: RunRecord, job: str, told: Told) -> None:
        record.counts["recycled"] += job not in record.results
        stay = record.stays.get(job)
        if stay is not None and stay.parked_since is None:
            stay.parked_since = self._clock()
            told[job] = ("park", record.holders[job])

    def _recycle(self, record: RunRecord, job: str, told: Told) -> bool:
        record.counts["recycled"] += job not in record.results and job not in record.parked()
        return self._stop(record, job, told)

    def _stop(self, record: RunRecord, job: str, told: Told) -> bool:
        lease = self._end_lease(job)
        if lease is None:
            return False
        why = "nothing of the run is wanted until the next batch"
        self._note(lease, AttemptOutcome.STOPPED, why)
        self._health.stopped(lease.slot)
        record.counts["attempts_stopped"] += 1
        told[job] = ("stop", lease)
        return True

    def _abandon(self, record: RunRecord, job: str, told: Told) -> None:
        """Stop the Job, or take it off the task queue, for good."""
        if self._stop(record, job, told):
            record.counts["dropped"] += 1
        elif job in record.tasks:
            record.tasks.remove(job)
            record.counts["dropped"] += 1

    def _deliver(self, record: RunRecord, decision: Deliver) -> None:
        at, ran = self._clock(), self._ran_till_now()
        since, ran_then = record.window or (at, ran)
        record.window = (at, ran) if record.open else None
        slots = sum(server.slots for server in self._servers.values())
        seconds = at - since
        idle = max(0.0, slots * seconds - (ran - ran_then))
        report = completed_report(decision.report, seconds=seconds, slots=slots, idle=idle)
        record.batches[decision.batch_id] = decision.groups
        record.reports[decision.batch_id] = record.last_report = report
        _count_seconds(record, report)


def _count_seconds(record: RunRecord, report: BatchReport) -> None:
    spent = report.slot_seconds
    for fate in FATES:
        record.seconds[fate] += getattr(spent, fate)
    record.seconds["surplus"] = spent.surplus


def _moved(told: Told) -> Moved:
    leases: dict[str, list[Lease]] = {"stop": [], "park": [], "resume": []}
    for what, lease in told.values():
        leases[what].append(lease)
    return Moved(**{what: tuple(each) for what, each in leases.items()})
