"""Decisions of the sampler, which the queues carry out."""

from enum import StrEnum

import msgspec

from orchestrator.events import Tried
from rollyard.messages import BatchReport


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all decisions."""


class Open(Decision, frozen=True):
    """Dispatch the Run's Jobs, and resume those that are parked."""


class Hold(Decision, frozen=True):
    """Dispatch none of the Run's Jobs."""


class Enqueue(Decision, frozen=True):
    """Add these members to their Group; their Jobs go to the head of the task queue, in order."""

    job_ids: tuple[str, ...]


class Park(Decision, frozen=True):
    """Let every running Job of the Run stand still at its turn boundary until the Run is opened."""


class RequeueAll(Decision, frozen=True):
    """Stop all running and parked Jobs of the Run and requeue them at the head, in the order in
    which they were leased."""


class Why(StrEnum):
    """Reason for stopping a Job or dropping a Group."""

    HELD = "held"
    """Nothing of the Run is wanted until the next Batch."""
    AGED = "aged"
    """The Job's tokens were too old for the Batch."""
    REDUNDANT = "redundant"
    """The Job's Group is complete without it."""
    FILTERED = "filtered"
    """The Group is complete and not effective."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """The history of the Group's Prompt predicted that it would not be effective."""
    CUT_SHORT = "cut short"
    """The Group's first stage predicted that a new Group would cost less."""
    DISCARDED = "discarded"
    """The Group was not in the completed Batch, and the Run keeps nothing else."""
    CONSUMED = "consumed"
    """The Group's Batch was acknowledged."""
    CLOSED = "closed"
    """The Group was heard of after its Run was closed."""


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
