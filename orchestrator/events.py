"""Events of a Run, in the one order in which its sampler handles them.

They stand on the Run's result queue until the collector has concluded them.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from orchestrator.ids import group_of


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events; the class name is the tag on the wire."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """History of a dataset row: solved and failed members of its earlier Groups, with decay."""

    solved: float = 0.0
    failed: float = 0.0
    batches: int = 0
    """`SamplerState.batches_delivered` when the history was updated."""


class PromptFed(Event, frozen=True):
    """A Prompt became a Group; its first members' Jobs stand on the task queue."""

    group_id: str
    row: str = ""
    """Key of the dataset row, the same for all Prompts made of it; empty if no history is kept."""
    tried: Tried | None = None
    """History of the row; None if it has none."""


class ResultAccepted(Event, frozen=True):
    """The one completed Result of a Job was stored."""

    job_id: str
    reward: float
    weight_version: int = 0
    """Weight version of its oldest token."""
    seconds: float = 0.0
    """Time on the Slot, excluding time parked."""


class Ending(StrEnum):
    """The way in which an attempt ended without an accepted Result."""

    STOPPED = "stopped"
    """The attempt was stopped because it was not wanted any more."""
    FAILED = "failed"
    """The attempt was lost with its server, or its infrastructure failed."""


class AttemptEnded(Event, frozen=True):
    """An attempt took time on a Slot without an accepted Result."""

    job_id: str
    seconds: float
    ending: Ending


class JobDied(Event, frozen=True):
    """A Job used up its budget of infrastructure failures."""

    job_id: str
    reason: str


class JobCancelled(Event, frozen=True):
    """An operator cancelled the Job, and with it its Group."""

    job_id: str


class BatchRequested(Event, frozen=True):
    """The trainer requested a Batch."""

    batch_id: str
    requested_batch_size: int
    weight_version: int = 0
    """Weight version that the Batch will update."""
    begun: dict[str, int] = {}
    """Leased Job -> weight version that it began under."""


class BatchAcknowledged(Event, frozen=True):
    """The trainer has trained on a Batch."""

    batch_id: str


class RunRetried(Event, frozen=True):
    """The trainer was told that its Groups died, and continues."""


class RunClosed(Event, frozen=True):
    """The Run was closed: nothing of it will run again."""


AnyEvent = (
    PromptFed
    | ResultAccepted
    | AttemptEnded
    | JobDied
    | JobCancelled
    | BatchRequested
    | BatchAcknowledged
    | RunClosed
    | RunRetried
)


def groups_of(event: AnyEvent) -> Iterable[str]:
    """The Groups that the event is about."""
    match event:
        case PromptFed():
            return [event.group_id]
        case ResultAccepted() | AttemptEnded() | JobDied() | JobCancelled():
            return [group_of(event.job_id)]
        case BatchRequested():
            return {group_of(job) for job in event.begun}
        case BatchAcknowledged() | RunClosed() | RunRetried():
            return []
