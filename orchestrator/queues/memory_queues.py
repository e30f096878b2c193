"""The three queues in this process: for tests and simulations. Nothing survives the process.

- One lock guards everything; each method is one atomic move, like a Redis script.
- Time is `clock`, so that a test or a simulation decides when a Lease expires.
"""

import itertools
from collections.abc import Iterable, Sequence

from orchestrator.events import AnyEvent
from orchestrator.queues.contract import (
    MOST_QUEUED_JOBS,
    Conclusion,
    Run,
    backlog_is_full,
    run_is_closed,
)
from orchestrator.queues.memory_jobs import MemoryJobs
from orchestrator.queues.memory_operations import MemoryOperations
from orchestrator.queues.memory_run import RunRecord, copied
from orchestrator.queues.memory_servers import MemoryServers
from orchestrator.sampler import AnyDecision, Deliver, Drop, Hold, Open, Recycle
from rollyard.errors import Conflict
from rollyard.messages import (
    AttemptOutcome,
    Group,
    Lease,
    Prompt,
    RunSettings,
)


class MemoryQueues(MemoryJobs, MemoryServers, MemoryOperations):
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
            if record.events and run_id not in self._events:
                self._events.append(run_id)
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
