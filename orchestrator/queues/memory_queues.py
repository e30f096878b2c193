"""The three queues in this process: for tests and simulations. Nothing survives the process.

- One lock guards everything; each method is one atomic move, like a Redis script.
- Time is `clock`, so that a test or a simulation decides when a Lease expires.
"""

import itertools
from collections.abc import Sequence

from orchestrator.events import AnyEvent
from orchestrator.queues.contract import (
    MOST_QUEUED_JOBS,
    Run,
    backlog_is_full,
    no_such_batch,
    run_is_closed,
)
from orchestrator.queues.memory_conclusions import MemoryConclusions
from orchestrator.queues.memory_jobs import MemoryJobs
from orchestrator.queues.memory_operations import MemoryOperations
from orchestrator.queues.memory_run import RunRecord
from orchestrator.queues.memory_servers import MemoryServers
from rollyard.errors import Conflict
from rollyard.messages import (
    BatchReport,
    Group,
    Prompt,
    RunSettings,
)


class MemoryQueues(MemoryJobs, MemoryServers, MemoryOperations, MemoryConclusions):
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

    def batch_report(self, run_id: str, batch_id: str) -> BatchReport:
        with self._changed:
            report = self._record(run_id).reports.get(batch_id)
            if report is None:
                raise no_such_batch(run_id, batch_id)
            return report

    def prompts(self, run_id: str) -> list[str]:
        with self._changed:
            return sorted(self._record(run_id).prompts)

    def begun(self, run_id: str) -> dict[str, int]:
        with self._changed:
            stays = self._record(run_id).stays
            return {job: stay.weight_version for job, stay in stays.items()}

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        with self._changed:
            record = self._record(run_id)
            self._changed.wait_for(lambda: record.news, seconds)
            record.news = False

    def wait_for_conclusion(self, run_id: str, seconds: float) -> None:
        with self._changed:
            record = self._record(run_id)
            self._changed.wait_for(lambda: record.settled, seconds)
            record.settled = False

    def wait_for_events(self, seconds: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._events, seconds)
            return self._events.popleft() if self._events else None

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        with self._changed:
            return list(itertools.islice(self._record(run_id).events, most))
