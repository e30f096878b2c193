"""The DAPO sampler: which Groups are kept, and when a Batch is complete.

A pure state machine: events in, decisions out; no clock, no I/O. It owns `SamplerState`, and

- every Group fed is in exactly one place: open, ready, delivered, or gone (filtered, dead,
  cancelled, acknowledged);
- a Batch is delivered once, with exactly the Groups requested, in the order they became so;
- ready Groups beyond the request (surplus) go to the next Batch;
- while no Batch is wanted the Run is held: nothing of it is dispatched, so that the next Batch is
  sampled under the weights that its request finds.

Dynamic sampling: DAPO, arXiv 2503.14476, section 3.2.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from orchestrator.events import (
    AnyEvent,
    BatchAcknowledged,
    BatchRequested,
    JobCancelled,
    JobDied,
    PromptFed,
    ResultAccepted,
    RunClosed,
    group_and_member,
    job_id,
)
from rollyard.messages import Criterion, RunSettings


class SamplerState(msgspec.Struct, kw_only=True):
    """Everything the sampler knows, small enough to be stored after every event."""

    open: dict[str, dict[int, float]] = {}
    """Group -> member -> reward, of the Groups with unfinished members; in feeding order."""
    ready: list[str] = []
    """Effective Groups, in the order they became so."""
    batch_id: str | None = None
    """The Batch requested and not yet acknowledged."""
    requested_batch_size: int = 0
    delivered: list[str] = []
    """The Groups of `batch_id`; empty until it is complete."""
    groups_kept: int = 0
    groups_filtered: int = 0
    groups_dead: int = 0
    groups_cancelled: int = 0
    closed: bool = False

    @property
    def wants_groups(self) -> bool:
        return self.batch_id is not None and not self.delivered


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what the sampler decides."""


class Open(Decision, frozen=True):
    """Dispatch the Run's Jobs."""


class Hold(Decision, frozen=True):
    """Dispatch none of the Run's Jobs."""


class Recycle(Decision, frozen=True):
    """Stop those of these Jobs that run; all of them wait, oldest first, for the next Batch."""

    job_ids: tuple[str, ...]


class Drop(Decision, frozen=True):
    """Forget these Groups with their Jobs and Results, finished or not."""

    group_ids: tuple[str, ...]


class Deliver(Decision, frozen=True):
    """The Batch is complete."""

    batch_id: str
    group_ids: tuple[str, ...]


AnyDecision = Open | Hold | Recycle | Drop | Deliver


class Sampler:
    """Decides for one Run. Feed it every event of the Run, in order, once."""

    def __init__(self, settings: RunSettings, state: SamplerState) -> None:
        self._settings = settings
        self.state = state

    def handle(self, event: AnyEvent) -> list[AnyDecision]:
        match event:
            case PromptFed():
                return self._prompt_fed(event)
            case ResultAccepted():
                return self._result_accepted(event)
            case JobDied():
                return self._job_died(event)
            case JobCancelled():
                return self._job_cancelled(event)
            case BatchRequested():
                return self._batch_requested(event)
            case BatchAcknowledged():
                return self._batch_acknowledged(event)
            case RunClosed():
                return self._run_closed()
            case _:
                assert_never(event)

    def _prompt_fed(self, event: PromptFed) -> list[AnyDecision]:
        if self.state.closed:
            return [Drop(group_ids=(event.group_id,))]
        self.state.open[event.group_id] = {}
        if self.state.delivered:  # while the Batch was completed, its Jobs may have been leased
            return [Recycle(job_ids=tuple(self._unfinished_of(event.group_id)))]
        return []

    def _result_accepted(self, event: ResultAccepted) -> list[AnyDecision]:
        group_id, member = group_and_member(event.job_id)
        rewards = self.state.open.get(group_id)
        if rewards is None:  # its Group was dropped while the Result was on its way
            return []
        rewards[member] = event.reward
        if len(rewards) < self._settings.group_size:
            return []
        del self.state.open[group_id]
        if not is_effective(self._settings.criterion, rewards.values()):
            self.state.groups_filtered += 1
            return [Drop(group_ids=(group_id,))]
        self.state.groups_kept += 1
        self.state.ready.append(group_id)
        return self._deliver_if_complete()

    def _job_died(self, event: JobDied) -> list[AnyDecision]:
        group_id, _ = group_and_member(event.job_id)
        if group_id not in self.state.open:
            return []
        del self.state.open[group_id]
        self.state.groups_dead += 1
        return [Drop(group_ids=(group_id,))]

    def _job_cancelled(self, event: JobCancelled) -> list[AnyDecision]:
        group_id, _ = group_and_member(event.job_id)
        if group_id not in self.state.open:
            return []
        del self.state.open[group_id]
        self.state.groups_cancelled += 1
        return [Drop(group_ids=(group_id,))]

    def _batch_requested(self, event: BatchRequested) -> list[AnyDecision]:
        if self.state.batch_id is not None or self.state.closed:
            return []  # a repeated request, or one that the API has refused
        self.state.batch_id = event.batch_id
        self.state.requested_batch_size = event.requested_batch_size
        return self._deliver_if_complete() or [Open()]

    def _batch_acknowledged(self, event: BatchAcknowledged) -> list[AnyDecision]:
        if event.batch_id != self.state.batch_id or not self.state.delivered:
            return []
        done = tuple(self.state.delivered)
        self.state.delivered = []
        self.state.batch_id = None
        self.state.requested_batch_size = 0
        return [Drop(group_ids=done)]

    def _run_closed(self) -> list[AnyDecision]:
        if self.state.closed:
            return []
        gone = (*self.state.open, *self.state.ready, *self.state.delivered)
        self.state.open, self.state.ready, self.state.delivered = {}, [], []
        self.state.batch_id = None
        self.state.closed = True
        return [Hold(), Drop(group_ids=gone)]

    def _deliver_if_complete(self) -> list[AnyDecision]:
        size = self.state.requested_batch_size
        if not self.state.wants_groups or len(self.state.ready) < size:
            return []
        assert self.state.batch_id is not None
        self.state.delivered = self.state.ready[:size]
        self.state.ready = self.state.ready[size:]
        return [
            Hold(),
            Recycle(job_ids=tuple(self._unfinished())),
            Deliver(batch_id=self.state.batch_id, group_ids=tuple(self.state.delivered)),
        ]

    def _unfinished(self) -> Iterable[str]:
        for group_id in self.state.open:
            yield from self._unfinished_of(group_id)

    def _unfinished_of(self, group_id: str) -> Iterable[str]:
        for member in range(self._settings.group_size):
            if member not in self.state.open[group_id]:
                yield job_id(self._settings.run_id, group_id, member)


def is_effective(criterion: Criterion, rewards: Iterable[float]) -> bool:
    """Whether a complete Group with these rewards is worth training on."""
    match criterion:
        case Criterion.REWARD_SPREAD:
            return len(set(rewards)) > 1
        case Criterion.COMPLETE:
            return True
        case _:
            assert_never(criterion)


def prompts_wanted(
    settings: RunSettings, state: SamplerState, *, queued_jobs: int, free_slots: int
) -> int:
    """Prompts the trainer should feed now: enough for the free Slots and the look-ahead."""
    if not state.wants_groups:
        return 0
    missing_jobs = free_slots + settings.look_ahead_jobs - queued_jobs
    return max(0, -(-missing_jobs // settings.group_size))
