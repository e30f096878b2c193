"""What the sampler decides, for the queues to carry out."""

from enum import StrEnum

import msgspec

from orchestrator.events import Tried
from rollyard.messages import BatchReport


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what the sampler decides."""


class Open(Decision, frozen=True):
    """Dispatch the Run's Jobs, and let those that are parked go on."""


class Hold(Decision, frozen=True):
    """Dispatch none of the Run's Jobs."""


class Enqueue(Decision, frozen=True):
    """Add these members to their Group: their Jobs wait first, in this order."""

    job_ids: tuple[str, ...]


class Park(Decision, frozen=True):
    """Every Job of the Run that runs stands still at its turn boundary until the Run is opened."""


class RequeueAll(Decision, frozen=True):
    """Stop every Job of the Run that runs, or is parked; they wait first, oldest attempt first."""


class Why(StrEnum):
    """Why Jobs are stopped, or a Group is dropped."""

    HELD = "held"
    """Nothing of the Run is wanted until the next Batch."""
    AGED = "aged"
    """Its tokens were too old for the Batch."""
    REDUNDANT = "redundant"
    """Its Group is complete without it."""
    FILTERED = "filtered"
    """Complete, and not effective."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """Its Prompt's history spoke against it."""
    CUT_SHORT = "cut short"
    """Its first stage spoke against it."""
    DISCARDED = "discarded"
    """Not in the Batch that was completed, and nothing is kept."""
    CONSUMED = "consumed"
    """Its Batch was acknowledged."""
    CLOSED = "closed"
    """Heard of after its Run was."""


class Requeue(Decision, frozen=True):
    """Stop those of these Jobs that run, or are parked; they wait first, in this order.

    One that has its Result, of which the sampler has not heard yet, keeps it.
    """

    job_ids: tuple[str, ...]
    why: Why = Why.AGED


class Retract(Decision, frozen=True):
    """Take the Results of these Jobs back; they wait first."""

    job_ids: tuple[str, ...]


class Cancel(Decision, frozen=True):
    """Stop and drop these Jobs; their Group does without them."""

    job_ids: tuple[str, ...]
    why: Why = Why.REDUNDANT


class Drop(Decision, frozen=True):
    """Forget these Groups with their Jobs and Results, finished or not."""

    group_ids: tuple[str, ...]
    why: Why


class Close(Decision, frozen=True):
    """Dispatch none of the Run's Jobs ever again, and forget its Groups, those too of which the
    sampler has not heard."""


class Remember(Decision, frozen=True):
    """Keep what became of a dataset row for its next Prompt."""

    row: str
    tried: Tried


class Chosen(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Members of one Group that a Batch has."""

    group_id: str
    members: tuple[int, ...]


class Deliver(Decision, frozen=True):
    """The Batch is complete. What only a clock can tell is missing in the report."""

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
