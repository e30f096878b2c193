"""Slots and a task queue, as the queues keep them, carrying out what the sampler decides.

- A Job waits, runs, stands still (parked, with its Slot), is done or is gone: exactly one of them.
- A parked Job loses nothing: what a generation has given is kept, and a tool call is short.
- All is instant but the trajectories themselves. What the queues cost is measured, not simulated.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from simulator.clock import Clock
from simulator.dataset import Draw

Move = Open | Hold | Enqueue | Park | RequeueAll | Requeue | Retract | Cancel | Drop | Close
"""The sampler's decisions on Jobs; its Batches and its memory of rows are the training's."""


@dataclass(slots=True, eq=False)
class Occupation:
    """A Job on a Slot."""

    job: str
    slot: int
    weight_version: int
    draw: Draw
    seconds: float
    """After so many it ends."""
    fails: bool
    since: float
    """It runs."""
    ran: float = 0.0
    """Before that."""
    ends_at: float | None = None
    """None while it stands still, and once it is over."""


class Watcher(Protocol):
    """Is told of every stretch that a Job ran on its Slot."""

    def ran(self, attempt: Occupation, until: float, *, over: bool) -> None: ...


class Beginning(Protocol):
    def __call__(self, job: str, tries: int, attempts: int) -> tuple[Draw, float, bool]:
        """What the attempt comes to, after how many seconds it ends, and whether by failing."""


class SimulatedQueues:
    def __init__(
        self,
        clock: Clock[Occupation | Callable[[], None]],
        slots: int,
        settings: RunSettings,
        begin: Beginning,
        watcher: Watcher | None = None,
    ) -> None:
        self.held = True
        self.running: dict[str, Occupation] = {}
        """With those that stand still."""
        self._clock = clock
        self._settings = settings
        self._begin = begin
        self._watcher = watcher
        self._free = deque(range(slots))
        self.tasks: deque[str] = deque()
        self._tries: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._busy = 0.0

    @property
    def queued(self) -> int:
        return len(self.tasks)

    @property
    def free(self) -> int:
        return len(self._free)

    def busy_seconds(self) -> float:
        """Slot time of all Jobs, up to now."""
        now = self._clock.now
        return self._busy + sum(
            now - each.since for each in self.running.values() if each.ends_at is not None
        )

    def begun(self) -> dict[str, int]:
        """Job -> the weight version that it began under."""
        return {job: attempt.weight_version for job, attempt in self.running.items()}

    def add(self, jobs: Iterable[str]) -> None:
        self.tasks.extend(jobs)

    def dispatch(self, weight_version: int) -> None:
        """Give the first Jobs to the free Slots."""
        while self.tasks and self._free and not self.held:
            job = self.tasks.popleft()
            attempts = self._attempts[job] = self._attempts.get(job, 0) + 1
            draw, seconds, fails = self._begin(job, self._tries.get(job, 0), attempts)
            now = self._clock.now
            attempt = Occupation(
                job, self._free.popleft(), weight_version, draw, seconds, fails, now
            )
            self.running[job] = attempt
            self._go_on(attempt)

    def is_due(self, attempt: Occupation) -> bool:
        """Whether the Occupation of which the clock tells has not been stopped, parked or moved."""
        return attempt.ends_at == self._clock.now

    def end(self, attempt: Occupation) -> None:
        """It is over, whatever it came to."""
        self._stand_still(attempt, over=True)
        del self.running[attempt.job]
        self._free.append(attempt.slot)

    def requeue(self, job: str) -> None:
        """First in line, after a loss."""
        self.tasks.appendleft(job)

    def lose(self, slots: range) -> list[Occupation]:
        """The Slots are gone for good, with what ran on them."""
        self._free = deque(slot for slot in self._free if slot not in slots)
        lost = [attempt for attempt in self.running.values() if attempt.slot in slots]
        for attempt in lost:
            self._stand_still(attempt, over=True)
            del self.running[attempt.job]
        return lost

    def carry_out(self, decision: Move) -> Sequence[AttemptEnded]:
        """Returns what the sampler has to hear of it."""
        match decision:
            case Open():
                self.held = False
                for attempt in self.running.values():
                    if attempt.ends_at is None:
                        attempt.since = self._clock.now
                        self._go_on(attempt)
            case Hold():
                self.held = True
            case Enqueue(job_ids=jobs):
                self.tasks.extendleft(reversed(jobs))
            case Park():
                for attempt in self.running.values():
                    self._stand_still(attempt, over=False)
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

    def _go_on(self, attempt: Occupation) -> None:
        attempt.ends_at = attempt.since + attempt.seconds - attempt.ran
        self._clock.at(attempt.ends_at, attempt)

    def _stand_still(self, attempt: Occupation, *, over: bool) -> None:
        if attempt.ends_at is None:
            return
        now = self._clock.now
        if self._watcher is not None:
            self._watcher.ran(attempt, now, over=over)
        self._busy += now - attempt.since
        attempt.ran += now - attempt.since
        attempt.ends_at = None

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
        self.tasks.extendleft(reversed(jobs))
        return ended

    def _drop(self, jobs: Iterable[str]) -> list[AttemptEnded]:
        gone = set(jobs)
        if any(job in gone for job in self.tasks):
            self.tasks = deque(job for job in self.tasks if job not in gone)
        for job in gone:
            self._tries.pop(job, None)
            self._attempts.pop(job, None)
        return self._stop(sorted(gone & self.running.keys()))

    def _jobs_of(self, names: Iterable[str]) -> Iterable[str]:
        for name in names:
            for member in range(self._settings.members):
                yield job_id(self._settings.run_id, name, member)
