"""The DAPO sampler: which members are kept, which are sampled anew, when a Batch is complete.

Each event goes to the part that decides on it: `batches` on what a Batch takes, `judges` on what
becomes of a Group.

A pure state machine. It owns `SamplerState`, and

- every Group fed is in exactly one place: open, complete, or dropped;
- a Batch is delivered once, with exactly the size requested, in the order of becoming effective;
- effective Groups beyond the request (surplus) go to the next Batch;
- no token in a Batch lies more than `max_staleness` versions behind the weights it updates;
- while no Batch is wanted the Run is held: nothing of it is dispatched, and its running Jobs are
  treated as `recycling` says.

Dynamic sampling: DAPO, arXiv 2503.14476, section 3.2.
"""

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
    RunClosed,
    RunRetried,
)
from orchestrator.ids import group_and_member
from orchestrator.sampling.batches import Batches
from orchestrator.sampling.decisions import Decisions, Drop, Why
from orchestrator.sampling.judges import GroupJudge, Judge, TrajectoryJudge
from orchestrator.sampling.state import GroupState, Member, SamplerState
from rollyard.messages import Recycling, RunSettings, Unit


class Sampler:
    """The sampler of one Run. It must be given every event of the Run, in order, once."""

    def __init__(self, settings: RunSettings, state: SamplerState) -> None:
        self.state = state
        self._settings = settings
        kind = TrajectoryJudge if settings.unit is Unit.TRAJECTORIES else GroupJudge
        self._judge: Judge = kind(settings, state)
        self._batches = Batches(settings, state, self._judge)

    def handle(self, event: AnyEvent) -> Decisions:
        match event:
            case PromptFed():
                return self._prompt_fed(event)
            case ResultAccepted():
                return self._result_accepted(event)
            case AttemptEnded():
                return self._attempt_ended(event)
            case JobDied():
                self.state.died(group_and_member(event.job_id)[0], event.reason)
                return self._abandon(event.job_id, Why.DEAD)
            case JobCancelled():
                return self._abandon(event.job_id, Why.CANCELLED)
            case BatchRequested():
                return self._batches.requested(event)
            case BatchAcknowledged():
                return self._batches.acknowledged(event)
            case RunClosed():
                return self._batches.closed()
            case RunRetried():
                self.state.begin_counting_deaths()
                return []

    def _prompt_fed(self, event: PromptFed) -> Decisions:
        state, name = self.state, event.group_id
        if state.closed:
            return [Drop(group_ids=(name,), why=Why.CLOSED)]
        group = GroupState(
            number=state.groups_fed,
            asked=self._settings.first_members,
            row=event.row,
            tried=event.tried,
        )
        state.groups_fed += 1
        begun = self._judge.begin(name, group)
        # It was fed while the Batch was completed. Unless the Run discards, its Jobs stay queued
        # or are parked until the next Batch.
        late = state.delivered and not state.wanted
        discards = self._settings.recycling is Recycling.DISCARD
        return self._batches.recycle() if late and discards and not begun else begun

    def _result_accepted(self, event: ResultAccepted) -> Decisions:
        state = self.state
        name, member = group_and_member(event.job_id)
        state.begun.pop(event.job_id, None)
        state.begin_counting_deaths()  # a success ends a series of deaths
        state.ledger.finished(event.seconds)
        group = state.open.get(name)
        if group is None:  # dropped, or completed without it, while the Result was on its way
            state.ledger.cancelled += event.seconds
            return []
        group.done[member] = Member(event.reward, event.weight_version, event.seconds)
        return self._batches.arrived(name, member)

    def _attempt_ended(self, event: AttemptEnded) -> Decisions:
        self.state.begun.pop(event.job_id, None)
        if event.ending is Ending.STOPPED:
            self.state.ledger.stopped(event.seconds)
        else:
            self.state.ledger.failed += event.seconds
        return []

    def _abandon(self, job: str, why: Why) -> Decisions:
        name, member = group_and_member(job)
        if name not in self.state.open or member in self.state.open[name].done:
            return []
        return self._judge.given_up(name, member, why) + self._batches.deliver_if_complete()


def prompts_wanted(
    settings: RunSettings, state: SamplerState, *, queued_jobs: int, free_slots: int
) -> int:
    """Number of Prompts to feed now: enough for the free Slots and the look-ahead."""
    if not state.wanted:
        return 0
    missing_jobs = free_slots + settings.look_ahead_jobs - queued_jobs
    # Rounded up; where the sampler adds the first members, a Prompt counts with all it may get.
    return max(0, -(-missing_jobs // (settings.first_members or settings.members)))
