"""Completion of Batches, and treatment of everything that is not in the one just completed.

Which Groups and members are ready for a Batch is decided by a `Judge`; delivering them, parking
or requeueing the others, and sampling stale members anew is decided here.
"""

from collections import Counter
from collections.abc import Iterable

from orchestrator.events import BatchAcknowledged, BatchRequested
from orchestrator.ids import group_and_member
from orchestrator.sampling.decisions import (
    Cancel,
    Chosen,
    Close,
    Decisions,
    Deliver,
    Drop,
    Hold,
    Open,
    Park,
    Requeue,
    RequeueAll,
    Retract,
    Why,
)
from orchestrator.sampling.judges import Judge
from orchestrator.sampling.state import SamplerState, Wanted
from rollyard.messages import BatchReport, Recycling, RunSettings

MAX_ACKNOWLEDGED_KNOWN = 64
"""Acknowledged Batches that are remembered, so that a late repeat of their request is ignored."""


class Batches:
    """The Batches of one Run: requested, sampled, delivered, acknowledged."""

    def __init__(self, settings: RunSettings, state: SamplerState, judge: Judge) -> None:
        self._settings = settings
        self._state = state
        self._judge = judge

    def requested(self, event: BatchRequested) -> Decisions:
        state = self._state
        if state.closed or state.knows(event.batch_id):
            return []
        state.begin_counting_deaths()
        state.wanted.append(
            Wanted(
                batch_id=event.batch_id,
                requested_batch_size=event.requested_batch_size,
                weight_version=event.weight_version,
            )
        )
        # The newest Batch has the strictest bound: a Job that is young enough for it is young
        # enough for all, and need not be remembered.
        oldest = event.weight_version - self._settings.max_staleness
        state.begun = {
            job: version
            for job, version in event.begun.items()
            if version < oldest and self._is_unfinished(job)
        }
        if len(state.wanted) > 1:  # requested ahead: its turn comes after the Batches before it
            return []
        return self._refresh() + (self.deliver_if_complete() or [Open()])

    def deliver_if_complete(self) -> Decisions:
        """Deliver the Batch that is sampled if it is complete, and go on with the next one."""
        state, decisions = self._state, Decisions()
        self._judge.admit()
        while state.wanted and len(state.ready) >= state.wanted[0].requested_batch_size:
            decisions.append(self._deliver(state.wanted.pop(0)))
            if not state.wanted:
                return [Hold(), *self.recycle(), *decisions]
            # The next Batch is wanted already, so that running Jobs need not be parked for it.
            if self._settings.recycling is not Recycling.RESUME:
                decisions += self.recycle()
            decisions += self._refresh()
            self._judge.admit()
        return decisions

    def recycle(self) -> Decisions:
        """Park, requeue or discard the open Groups, which no Batch wants now."""
        match self._settings.recycling:
            case Recycling.RESUME:
                return [Park()]
            case Recycling.RESTART:
                return [RequeueAll()]
            case Recycling.DISCARD:
                return self._discard()

    def acknowledged(self, event: BatchAcknowledged) -> Decisions:
        state = self._state
        if event.batch_id not in state.delivered:
            return []
        taken = state.delivered.pop(event.batch_id)
        state.acknowledged = [*state.acknowledged, event.batch_id][-MAX_ACKNOWLEDGED_KNOWN:]
        # By trajectories, other members of these Groups may be ready or in a later Batch.
        placed = state.placed_groups
        used = [each.group_id for each in taken if each.group_id not in placed]
        used = [name for name in used if state.complete.pop(name, None) is not None]
        return [Drop(group_ids=tuple(used), why=Why.CONSUMED)] if used else []

    def closed(self) -> Decisions:
        state = self._state
        if state.closed:
            return []
        state.open, state.complete, state.ready = {}, {}, []
        state.wanted, state.delivered, state.begun = [], {}, {}
        state.closed = True
        return [Close()]

    # Staleness

    def is_too_old(self, weight_version: int) -> bool:
        """Whether a token of this version exceeds the staleness bound of the Batch now sampled."""
        wanted = self._state.wanted
        return bool(wanted) and (
            weight_version < wanted[0].weight_version - self._settings.max_staleness
        )

    def arrived(self, name: str, member: int) -> Decisions:
        """Judge a finished member of an open Group, unless it is too old itself, and sample anew
        those members of its Group that are too old, if the Group is bound for a Batch."""
        jobs, members = self._too_old(name, member)
        restart, judged = self._restart(name, members), Decisions()
        if member not in members:
            judged = self._judge.finished(name, member)
        # A Group that this member has completed, or dropped, needs none of these Jobs any more.
        requeue = self._requeue(jobs) if name in self._state.open else []
        return [*requeue, *restart, *judged, *self.deliver_if_complete()]

    def _refresh(self) -> Decisions:
        """Sample anew all members that are too old for the Batch sampled from now on."""
        state = self._state
        state.restarted_before = state.members_restarted
        running, restarts = list[str](), Decisions()
        for name in (*state.open, *state.complete):
            jobs, members = self._too_old(name)
            running += jobs
            restarts += self._restart(name, members)
        return self._requeue(running) + restarts

    def _too_old(self, name: str, arriving: int | None = None) -> tuple[list[str], list[int]]:
        """Unfinished Jobs and finished members of the Group that are too old.

        A Group that may still be filtered continues as it is: most Groups are filtered, and
        sampling members anew would be wasted on them.
        """
        state = self._state
        group = state.group(name)
        members = [
            member
            for member in self._judge.bound_for_batch(name, group, arriving)
            if self.is_too_old(group.done[member].weight_version)
        ]
        if members:
            delivered = state.delivered_members
            members = [member for member in members if (name, member) not in delivered]
        if not (state.begun and self._judge.is_promising(group)):
            return [], members
        jobs = [self._judge.job(name, member) for member in group.unfinished()]
        return [j for j in jobs if j in state.begun and self.is_too_old(state.begun[j])], members

    def _requeue(self, jobs: list[str]) -> Decisions:
        for job in jobs:
            del self._state.begun[job]
        self._state.members_restarted += len(jobs)
        return [Requeue(job_ids=tuple(jobs))] if jobs else []

    def _restart(self, name: str, members: list[int]) -> Decisions:
        """Retract the Results of these members; their Group is open until they are back."""
        if not members:
            return []
        state = self._state
        if name in state.complete:
            state.reopen(name)
            state.groups_kept -= 1
        state.ready = [
            each
            for each in state.ready
            if each.group_id != name or not set(members) & set(each.members)
        ]
        for member in members:
            state.ledger.cancelled += state.open[name].done.pop(member).seconds
        state.members_restarted += len(members)
        return [Retract(job_ids=tuple(self._judge.job(name, member) for member in members))]

    # Inside

    def _deliver(self, wanted: Wanted) -> Deliver:
        state, size = self._state, wanted.requested_batch_size
        taken, state.ready = tuple(_merged(state.ready[:size])), state.ready[size:]
        state.delivered[wanted.batch_id] = taken
        state.batches_delivered += 1
        members = state.members(taken)
        lengths = [each.seconds for each in members]
        ages = Counter(wanted.weight_version - each.weight_version for each in members)
        report = BatchReport(
            weight_version=wanted.weight_version,
            bias=state.ledger.bias(lengths, ages),
            slot_seconds=state.ledger.close(
                useful=sum(lengths),
                surplus=sum(each.seconds for each in state.members(state.ready)),
            ),
        )
        return Deliver(batch_id=wanted.batch_id, groups=taken, report=report)

    def _discard(self) -> Decisions:
        """Keep nothing but what is delivered: no open Group, and no surplus."""
        state, kept = self._state, {name for name, _ in self._state.delivered_members}
        state.ready = []
        # Members of these Groups are in a delivered Batch, which can still be fetched: the Groups
        # stay, without their unfinished members.
        partly = [name for name in state.open if name in kept]
        cancelled = tuple(
            self._judge.job(name, member)
            for name in partly
            for member in state.open[name].unfinished()
        )
        for name in partly:
            state.close(name)
        dropped = [name for name in (*state.open, *state.complete) if name not in kept]
        for name in dropped:
            state.ledger.cancelled += state.group(name).seconds
            state.open.pop(name, None)
            state.complete.pop(name, None)
        state.groups_discarded += len(dropped)
        drop: Decisions = [Drop(group_ids=tuple(dropped), why=Why.DISCARDED)] if dropped else []
        return [*drop, Cancel(job_ids=cancelled, why=Why.DISCARDED)] if cancelled else drop

    def _is_unfinished(self, job: str) -> bool:
        name, member = group_and_member(job)
        group = self._state.open.get(name)
        return group is not None and member not in group.done


def _merged(choice: Iterable[Chosen]) -> Iterable[Chosen]:
    """`choice` with the members of each Group joined, Groups in order of first appearance."""
    together: dict[str, list[int]] = {}
    for chosen in choice:
        together.setdefault(chosen.group_id, []).extend(chosen.members)
    for name, members in together.items():
        yield Chosen(group_id=name, members=tuple(sorted(members)))
