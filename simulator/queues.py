"""Simulated Slots and task queue, which carry out the sampler's decisions.

- A Job is queued, running, parked (with its Slot), done or dropped: exactly one of them.
- A parked Job loses no time: production keeps its unfinished response, and tool calls are short.
- Only trajectories take time: that is `Work`. The cost of the queues is measured by benchmarks, not
  simulated.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, assert_never

from orchestrator.events import AttemptEnded, Ending
from orchestrator.ids import job_id
from orchestrator.sampling.decisions import (
    Cancel,
    Close,
    Drop,
    Enqueue,
    Hold,
    Open,
    Park,
    Requeue,
    RequeueAll,
    Retract,
)
from rollyard.messages import RunSettings
from simulator.dataset import Draw
from simulator.tasks import SimulatedTasks
from simulator.work import Occupation, Timer, Work

Move = Open | Hold | Enqueue | Park | RequeueAll | Requeue | Retract | Cancel | Drop | Close
"""The sampler's decisions on Jobs; those on Batches and on rows' histories are `Training`'s."""


class SlotWatcher(Protocol):
    """An observer of every stretch of time that a Job ran on its Slot."""

    def ran(self, attempt: Occupation, until: float, *, over: bool) -> None: ...


class Beginning(Protocol):
    def __call__(self, job: str, tries: int, attempts: int) -> tuple[Draw, float, bool]:
        """Reward and length of the trajectory, running time of the attempt, and whether it fails
        at its end."""


class SimulatedQueues:
    def __init__(
        self,
        clock: Timer,
        tasks: SimulatedTasks,
        settings: RunSettings,
        work: Work,
        begin: Beginning,
        watcher: SlotWatcher | None = None,
    ) -> None:
        self.held = True
        self.running: dict[str, Occupation] = {}
        """Job -> its attempt, running or parked."""
        self._clock = clock
        self._settings = settings
        self._work = work
        self._begin = begin
        self._watcher = watcher
        self.tasks = tasks
        self._tries: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._busy = 0.0

    @property
    def queued(self) -> int:
        return len(self.tasks)

    @property
    def free(self) -> int:
        return self.tasks.free

    def busy_seconds(self) -> float:
        """Slot time that all Jobs have run up to now."""
        now = self._clock.now
        return self._busy + sum(now - each.since for each in self.running.values() if each.runs)

    def begun(self) -> dict[str, int]:
        """Leased Job -> weight version that it began under."""
        return {job: attempt.weight_version for job, attempt in self.running.items()}

    def add(self, jobs: Iterable[str]) -> None:
        self.tasks.queue_last(jobs)

    def dispatch(self, weight_version: int) -> None:
        """Lease the first Jobs on the queue to the free Slots."""
        for job, slot in () if self.held else self.tasks.take_pairs():
            attempts = self._attempts[job] = self._attempts.get(job, 0) + 1
            draw, seconds, fails = self._begin(job, self._tries.get(job, 0), attempts)
            now = self._clock.now
            attempt = Occupation(job, slot, weight_version, draw, seconds, fails, now)
            self.running[job] = attempt
            self._run(attempt)

    def is_due(self, attempt: Occupation) -> bool:
        """Whether the attempt ends now. The clock keeps the ends of attempts that were stopped or
        parked since."""
        return attempt.ends_at == self._clock.now

    def end(self, attempt: Occupation) -> None:
        """End an attempt, in whichever way, and free its Slot."""
        self._pause(attempt, over=True)
        del self.running[attempt.job]
        self.tasks.free_slot(attempt.slot)

    def requeue(self, job: str) -> None:
        """Requeue a lost Job at the head."""
        self.tasks.queue_first([job])

    def lose(self, slots: range) -> list[Occupation]:
        """Remove Slots for good, and return the attempts that are lost with them."""
        self.tasks.lose(slots)
        lost = [attempt for attempt in self.running.values() if attempt.slot in slots]
        for attempt in lost:
            self._pause(attempt, over=True)
            del self.running[attempt.job]
        return lost

    def carry_out(self, decision: Move) -> Sequence[AttemptEnded]:
        """Carry out a decision, and return the events that it causes."""
        match decision:
            case Open():
                self.held = False
                for attempt in self.running.values():
                    if not attempt.runs:
                        attempt.since = self._clock.now
                        self._run(attempt)
            case Hold():
                self.held = True
            case Enqueue(job_ids=jobs):
                self.tasks.queue_first(jobs)
            case Park():
                for attempt in self.running.values():
                    self._pause(attempt, over=False)
            case RequeueAll():
                return self._begin_again(list(self.running))
            case Requeue(job_ids=jobs):
                return self._begin_again([job for job in jobs if job in self.running])
            case Retract(job_ids=jobs):
                return self._begin_again(jobs)
            case Cancel(job_ids=jobs):
                return self._drop(jobs)
            case Drop(group_ids=names):
                return self._drop(self._jobs_of(names))
            case Close():
                self.held = True
                return self._drop([*self.tasks, *self.running])
            case _:
                assert_never(decision)
        return ()

    def _run(self, attempt: Occupation) -> None:
        attempt.runs = True
        self._work.go(attempt)

    def _pause(self, attempt: Occupation, *, over: bool) -> None:
        if over or attempt.runs:
            self._work.stop(attempt, over=over)
        if not attempt.runs:
            return
        now = self._clock.now
        if self._watcher is not None:
            self._watcher.ran(attempt, now, over=over)
        self._busy += now - attempt.since
        attempt.ran += now - attempt.since
        attempt.runs, attempt.ends_at = False, None

    def _stop(self, jobs: Iterable[str]) -> list[AttemptEnded]:
        stopped = [self.running[job] for job in jobs if job in self.running]
        for attempt in stopped:
            self.end(attempt)
        return [
            AttemptEnded(job_id=each.job, seconds=each.ran, ending=Ending.STOPPED)
            for each in stopped
        ]

    def _begin_again(self, jobs: Sequence[str]) -> list[AttemptEnded]:
        for job in jobs:
            self._tries[job] = self._tries.get(job, 0) + 1
        ended = self._stop(jobs)
        self.tasks.queue_first(jobs)
        return ended

    def _drop(self, jobs: Iterable[str]) -> list[AttemptEnded]:
        dropped = set(jobs)
        self.tasks.drop(dropped)
        for job in dropped:
            self._tries.pop(job, None)
            self._attempts.pop(job, None)
        # Sorted, because the order of a set would differ from one process to the next.
        return self._stop(sorted(dropped & self.running.keys()))

    def _jobs_of(self, names: Iterable[str]) -> Iterable[str]:
        for name in names:
            for member in range(self._settings.members):
                yield job_id(self._settings.run_id, name, member)
