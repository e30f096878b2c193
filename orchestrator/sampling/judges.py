"""Judges: as members of a Group finish, it is kept, filtered or cut short, or more members begin.

Two judges, one for each unit that a Batch can count; the rest of the sampler does not know which.
"""

from abc import ABC, abstractmethod

from orchestrator.events import Tried
from orchestrator.ids import job_id
from orchestrator.sampling.criteria import is_effective, solved
from orchestrator.sampling.decisions import (
    Cancel,
    Chosen,
    Decisions,
    Drop,
    Enqueue,
    Remember,
    Why,
)
from orchestrator.sampling.prediction import Odds
from orchestrator.sampling.state import GroupState, SamplerState
from rollyard.messages import Criterion, RunSettings


class Judge(ABC):
    """Decides which Groups and members are ready for a Batch."""

    def __init__(self, settings: RunSettings, state: SamplerState) -> None:
        self._settings = settings
        self._state = state

    def begin(self, name: str, group: GroupState) -> Decisions:
        """Begin a Group, or skip it by the history of its dataset row."""
        self._state.open[name] = group
        return []

    @abstractmethod
    def finished(self, name: str, member: int) -> Decisions:
        """Judge a Group of which another member has finished."""

    @abstractmethod
    def given_up(self, name: str, member: int, why: Why) -> Decisions:
        """Judge a Group of which a member died or was cancelled."""

    def admit(self) -> None:  # noqa: B027 - trajectories never wait for each other
        """Add to `ready` the complete Groups that only waited for earlier ones."""

    @abstractmethod
    def bound_for_batch(
        self, name: str, group: GroupState, arriving: int | None = None
    ) -> list[int]:
        """The finished members that are certain to enter a Batch, `arriving` included."""

    @abstractmethod
    def is_promising(self, group: GroupState) -> bool:
        """Whether members that are still to come are certain to enter a Batch."""

    def job(self, name: str, member: int) -> str:
        """The id of a member's Job."""
        return job_id(self._settings.run_id, name, member)


class GroupJudge(Judge):
    """Groups enter Batches whole."""

    def begin(self, name: str, group: GroupState) -> Decisions:
        if not self._settings.prediction.skip_by_history:
            return super().begin(name, group)
        odds = self._odds()
        if odds.skips(name, odds.faded(group.tried, self._state.batches_delivered)):
            self._state.groups_skipped += 1
            return [Drop(group_ids=(name,), why=Why.SKIPPED)]
        self._state.open[name] = group
        return [self._ask(name, group, self._settings.first_stage)]

    def finished(self, name: str, member: int) -> Decisions:
        group = self._state.open[name]
        if len(group.done) >= self._settings.group_size:
            return self._judge(name, group)
        if group.asked < self._settings.members:
            return self._next_stage(name, group)
        return []

    def given_up(self, name: str, member: int, why: Why) -> Decisions:
        group = self._state.open.pop(name)
        self._state.ledger.cancelled += group.seconds
        if why is Why.DEAD:
            self._state.groups_dead += 1
        else:
            self._state.groups_cancelled += 1
        return [Drop(group_ids=(name,), why=why)]

    def admit(self) -> None:
        """In launch order, a Group is ready once no Group fed before it is open any more."""
        if not self._settings.prediction.launch_order:
            return
        state = self._state
        first_open = min((each.number for each in state.open.values()), default=state.groups_fed)
        placed = state.placed_groups
        for name in sorted(state.complete, key=lambda name: state.complete[name].number):
            if name not in placed and state.complete[name].number < first_open:
                state.ready.append(_all_of(name, state.group(name)))

    def bound_for_batch(
        self, name: str, group: GroupState, arriving: int | None = None
    ) -> list[int]:
        return list(group.done) if self.is_promising(group) else []

    def is_promising(self, group: GroupState) -> bool:
        # By every criterion, an effective Group stays effective whatever its other members do.
        rewards = [each.reward for each in group.done.values()]
        return is_effective(self._settings, rewards)

    def _judge(self, name: str, group: GroupState) -> Decisions:
        """Keep or filter a Group with `group_size` finished members."""
        state = self._state
        rewards = [group.done[member].reward for member in sorted(group.done)]
        decisions = self._learn(group, rewards)
        if not is_effective(self._settings, rewards):
            del state.open[name]
            state.groups_filtered += 1
            state.ledger.filtered += group.seconds
            return [*decisions, Drop(group_ids=(name,), why=Why.FILTERED)]
        redundant = group.unfinished()
        group.given_up += redundant
        state.groups_kept += 1
        state.close(name)
        if not self._settings.prediction.launch_order:
            state.ready.append(_all_of(name, group))
        if not redundant:
            return decisions
        state.members_redundant += len(redundant)
        return [*decisions, Cancel(job_ids=tuple(self.job(name, each) for each in redundant))]

    def _next_stage(self, name: str, group: GroupState) -> Decisions:
        """Begin the Group's other members, or cut it short if a new Group would cost less."""
        rewards = [each.reward for each in group.done.values()]
        if is_effective(self._settings, rewards):
            return [self._ask(name, group, self._settings.members)]
        if group.unfinished():
            return []
        odds, passed = self._odds(), solved(self._settings, rewards)
        past = odds.faded(group.tried, self._state.batches_delivered)
        if odds.goes_on(past, passed, len(rewards) - passed):
            return [self._ask(name, group, self._settings.members)]
        del self._state.open[name]
        self._state.groups_cut_short += 1
        self._state.ledger.filtered += group.seconds
        return [*self._learn(group, rewards), Drop(group_ids=(name,), why=Why.CUT_SHORT)]

    def _ask(self, name: str, group: GroupState, members: int) -> Enqueue:
        more = tuple(self.job(name, member) for member in range(group.asked, members))
        group.asked = members
        return Enqueue(job_ids=more)

    def _learn(self, group: GroupState, rewards: list[float]) -> Decisions:
        """Update the history of the Group's dataset row, and the statistics of all rows; once."""
        prediction = self._settings.prediction
        if group.learnt or not (prediction.skip_by_history or prediction.stage_members):
            return []
        group.learnt = True
        passed, batches = solved(self._settings, rewards), self._state.batches_delivered
        if group.tried is None:
            key = f"{passed}/{len(rewards)}"
            self._state.pass_counts[key] = self._state.pass_counts.get(key, 0) + 1
        if not (prediction.skip_by_history and group.row):
            return []
        past = self._odds().faded(group.tried, batches)
        failed = past[1] + len(rewards) - passed
        tried = Tried(solved=past[0] + passed, failed=failed, batches=batches)
        return [Remember(row=group.row, tried=tried)]

    def _odds(self) -> Odds:
        return Odds(self._settings, self._state.pass_counts)


class TrajectoryJudge(Judge):
    """Members enter Batches one by one; a Group is dropped once its last member is consumed."""

    def finished(self, name: str, member: int) -> Decisions:
        done = self._state.open[name].done[member]
        if is_effective(self._settings, [done.reward]):
            self._state.ready.append(Chosen(group_id=name, members=(member,)))
        else:
            self._state.ledger.filtered += done.seconds
        return self._complete(name, Why.FILTERED)

    def given_up(self, name: str, member: int, why: Why) -> Decisions:
        self._state.open[name].given_up.append(member)
        cancel = Cancel(job_ids=(self.job(name, member),), why=why)
        return [cancel, *self._complete(name, why)]

    def bound_for_batch(
        self, name: str, group: GroupState, arriving: int | None = None
    ) -> list[int]:
        bound = [m for each in self._state.ready if each.group_id == name for m in each.members]
        if arriving is None or not is_effective(self._settings, [group.done[arriving].reward]):
            return bound
        return [*bound, arriving]

    def is_promising(self, group: GroupState) -> bool:
        return self._settings.criterion is Criterion.COMPLETE

    def _complete(self, name: str, why: Why) -> Decisions:
        """Close the Group if it has no unfinished members any more."""
        state, group = self._state, self._state.open[name]
        if group.unfinished():
            return []
        if any(is_effective(self._settings, [each.reward]) for each in group.done.values()):
            state.groups_kept += 1
            why = Why.CONSUMED  # if none of its effective members is placed, all were acknowledged
        elif why is Why.DEAD:
            state.groups_dead += 1
        elif why is Why.CANCELLED:
            state.groups_cancelled += 1
        else:
            state.groups_filtered += 1
        if name in state.placed_groups:
            state.close(name)
            return []
        del state.open[name]
        return [Drop(group_ids=(name,), why=why)]


def _all_of(name: str, group: GroupState) -> Chosen:
    return Chosen(group_id=name, members=tuple(sorted(group.done)))
