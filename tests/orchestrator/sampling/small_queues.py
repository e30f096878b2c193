"""The queues of one Run in a few lines: carries out what a sampler decides, in any order of events.

- Events reach the sampler late, several at once, as they do from the queues.
- `check` holds at every moment: each Job of a Group that is not gone is in exactly one place.
"""

import random
from collections import deque

from orchestrator.events import (
    AnyEvent,
    AttemptEnded,
    BatchAcknowledged,
    BatchRequested,
    Ending,
    JobCancelled,
    JobDied,
    PromptFed,
    ResultAccepted,
    Tried,
)
from orchestrator.ids import group_and_member, job_id
from orchestrator.sampling.decisions import (
    AnyDecision,
    Cancel,
    Chosen,
    Close,
    Deliver,
    Drop,
    Enqueue,
    Hold,
    Open,
    Park,
    Remember,
    Requeue,
    RequeueAll,
    Retract,
    Why,
)
from orchestrator.sampling.sampler import Sampler
from orchestrator.sampling.state import SamplerState
from rollyard.messages import RunSettings


class SmallQueues:
    def __init__(self, settings: RunSettings, draw: random.Random, *, slots: int = 6) -> None:
        self.settings = settings
        self.sampler = Sampler(settings, SamplerState())
        self.draw = draw
        self.slots = slots
        self.open = False
        self.version = 0
        self.events: deque[AnyEvent] = deque()
        self.queued: deque[str] = deque()
        self.running: dict[str, int] = {}
        """Job -> the weight version it began under."""
        self.parked: set[str] = set()
        self.results: dict[str, ResultAccepted] = {}
        self.dead: set[str] = set()
        self.dropped: set[str] = set()
        self.groups: dict[str, Why | None] = {}
        """Every Group ever fed -> why it is gone."""
        self.rows: dict[str, Tried] = {}
        self.batches: dict[str, tuple[Chosen, ...]] = {}
        self.requested: dict[str, BatchRequested] = {}
        self.delivered: list[str] = []

    # What happens around a sampler

    def feed(self) -> None:
        name = f"g{len(self.groups)}"
        row = f"row{self.draw.randrange(5)}" if self.settings.prediction.skip_by_history else ""
        self.groups[name] = None
        self.queued.extend(self._jobs(name)[: self.settings.first_members])
        self.events.append(PromptFed(group_id=name, row=row, tried=self.rows.get(row)))

    def lease(self) -> None:
        if self.open and self.queued and len(self.running) < self.slots:
            self.running[self.queued.popleft()] = self.version

    def finish(self, job: str, reward: float) -> None:
        began = self.running.pop(job)
        self.parked.discard(job)
        accepted = ResultAccepted(job_id=job, reward=reward, weight_version=began, seconds=1.0)
        self.results[job] = accepted
        self.events.append(accepted)

    def lose(self, job: str) -> None:
        """With its server; it waits again."""
        self._end(job, Ending.FAILED)
        self.queued.appendleft(job)

    def die(self, job: str) -> None:
        self._end(job, Ending.FAILED)
        self.dead.add(job)
        self.events.append(JobDied(job_id=job, reason="poison"))

    def cancel(self, job: str) -> None:
        self.events.append(JobCancelled(job_id=job))

    def request(self, size: int, *, ahead: int = 0) -> None:
        batch = f"b{len(self.requested)}"
        event = BatchRequested(
            batch_id=batch,
            requested_batch_size=size,
            weight_version=self.version + ahead,
            begun=dict(self.running),
        )
        self.requested[batch] = event
        self.events.append(event)

    def acknowledge(self, batch: str) -> None:
        self.delivered.remove(batch)
        self.events.append(BatchAcknowledged(batch_id=batch))

    def conclude(self, most: int = 1) -> None:
        """Let the sampler hear of the oldest events, and carry out what it decides."""
        heard = [self.events.popleft() for _ in range(min(most, len(self.events)))]
        for decision in [each for event in heard for each in self.sampler.handle(event)]:
            self._carry_out(decision)
        self.check()

    # What always holds

    def check(self) -> None:
        for name, why in self.groups.items():
            for job in self._jobs(name):
                places = (
                    self.queued.count(job)
                    + (job in self.running)
                    + (job in self.results)
                    + (job in self.dead)
                    + (job in self.dropped)
                )
                if why is not None:
                    assert places == 0, f"{job} of a group that is gone ({why})"
                else:
                    assert places <= 1, f"{job} is in {places} places"
        assert self.parked <= set(self.running)
        if self.open:
            assert not self.parked, "parked in an open run"

    # Inside

    def _carry_out(self, decision: AnyDecision) -> None:
        match decision:
            case Open():
                self.open, self.parked = True, set()
            case Hold():
                self.open = False
            case Enqueue(job_ids=jobs):
                self.queued.extendleft(reversed(jobs))
            case Park():
                self.parked = set(self.running)
            case RequeueAll():
                self._requeue(list(self.running))
            case Requeue(job_ids=jobs):
                self._requeue([job for job in jobs if job in self.running])
            case Retract(job_ids=jobs):
                for job in reversed(jobs):
                    del self.results[job]
                    self.queued.appendleft(job)
            case Cancel(job_ids=jobs):
                self.dropped |= {job for job in jobs if self._forget(job)}
            case Drop(group_ids=names, why=why):
                for name in names:
                    self._drop(name, why)
            case Close():
                self.open = False
                for name in [name for name, why in self.groups.items() if why is None]:
                    self._drop(name, Why.CLOSED)
            case Remember(row=row, tried=tried):
                self.rows[row] = tried
            case Deliver(batch_id=batch, groups=groups):
                self.batches[batch] = groups
                self.delivered.append(batch)
                self._check_batch(batch, groups)

    def _requeue(self, jobs: list[str]) -> None:
        for job in jobs:
            self._end(job, Ending.STOPPED)
        self.queued.extendleft(reversed(jobs))

    def _check_batch(self, batch: str, groups: tuple[Chosen, ...]) -> None:
        wanted = self.requested[batch]
        size = len(groups)
        if self.settings.unit == "trajectories":
            size = sum(len(chosen.members) for chosen in groups)
        assert size == wanted.requested_batch_size
        oldest = wanted.weight_version - self.settings.max_staleness
        for chosen in groups:
            if self.settings.unit == "groups":
                assert len(chosen.members) == self.settings.group_size
            for member in chosen.members:
                result = self.results[job_id("r", chosen.group_id, member)]
                assert result.weight_version >= oldest, "too old"

    def _drop(self, name: str, why: Why) -> None:
        assert self.groups[name] is None, f"{name} is dropped twice"
        self.groups[name] = why
        for job in self._jobs(name):
            self._forget(job)
            self.results.pop(job, None)
            self.dead.discard(job)
            self.dropped.discard(job)

    def _forget(self, job: str) -> bool:
        """Whether it was running or queued."""
        if job in self.running:
            self._end(job, Ending.STOPPED)
        elif job in self.queued:
            self.queued.remove(job)
        else:
            return False
        return True

    def _end(self, job: str, ending: Ending) -> None:
        del self.running[job]
        self.parked.discard(job)
        self.events.append(AttemptEnded(job_id=job, seconds=0.5, ending=ending))

    def _jobs(self, name: str) -> list[str]:
        return [job_id("r", name, member) for member in range(self.settings.members)]


def group_of(job: str) -> str:
    return group_and_member(job)[0]
