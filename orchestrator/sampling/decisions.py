"""Decisions of the sampler, which the queues carry out."""

from enum import StrEnum

import msgspec

from orchestrator.events import Tried
from rollyard.messages import BatchReport


class Decision(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=str.lower):
    """Base of all decisions, each of which `conclude.lua` reads as its kind and its fields."""


class Open(Decision, frozen=True):
    """Dispatch the Run's Jobs, and resume those that are parked."""


class Hold(Decision, frozen=True):
    """Dispatch none of the Run's Jobs."""


class Enqueue(Decision, frozen=True):
    """Add these members to their Group; their Jobs go to the head of the task queue, in order."""

    job_ids: tuple[str, ...]


class Park(Decision, frozen=True):
    """Let every running Job of the Run stand still where it is until the Run is opened."""


class Why(StrEnum):
    """Reason for stopping a Job or dropping a Group, which the Job's history gives to people."""

    HELD = "nothing of the run is wanted until the next batch"
    AGED = "its tokens were too old for the batch"
    REDUNDANT = "its group is complete without it"
    FILTERED = "its group could not be effective any more"
    DEAD = "a job of its group died"
    CANCELLED = "an operator cancelled it"
    SKIPPED = "the history of its prompt spoke against it"
    CUT_SHORT = "the first members of its group spoke against the others"
    DISCARDED = "a batch was complete without it, and the run keeps nothing"
    CONSUMED = "the batch of its group was acknowledged"
    CLOSED = "the run was closed"


class RequeueAll(Decision, frozen=True, tag="requeue_all"):
    """Stop all running and parked Jobs of the Run and requeue them at the head, in the order in
    which they were leased."""

    why: Why = Why.HELD


class Requeue(Decision, frozen=True):
    """Stop those of these Jobs that run or are parked, and requeue them at the head, in order.

    A Job whose Result was accepted meanwhile, unknown to the sampler, keeps it.
    """

    job_ids: tuple[str, ...]
    why: Why = Why.AGED


class Retract(Decision, frozen=True):
    """Withdraw the accepted Results of these Jobs, and requeue the Jobs at the head."""

    job_ids: tuple[str, ...]


class Cancel(Decision, frozen=True):
    """Stop and drop these Jobs; their Group continues without them."""

    job_ids: tuple[str, ...]
    why: Why = Why.REDUNDANT


class Drop(Decision, frozen=True):
    """Forget these Groups with their Jobs and Results, finished or not."""

    group_ids: tuple[str, ...]
    why: Why


class Close(Decision, frozen=True):
    """Never dispatch a Job of the Run again, and forget its Groups, including those that the
    sampler has not heard of."""


class Remember(Decision, frozen=True):
    """Keep the history of a dataset row for its next Prompt."""

    row: str
    tried: Tried


class Chosen(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Members of one Group chosen for a Batch."""

    group_id: str
    members: tuple[int, ...]


class Deliver(Decision, frozen=True):
    """Deliver a complete Batch. Times that only a clock can tell are missing in its report."""

    batch_id: str
    groups: tuple[Chosen, ...]
    report: BatchReport


AnyDecision = (
    Open
    | Hold
    | Enqueue
    | Park
    | RequeueAll
    | Requeue
    | Retract
    | Cancel
    | Drop
    | Close
    | Remember
    | Deliver
)

Decisions = list[AnyDecision]
