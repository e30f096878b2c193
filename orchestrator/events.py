"""What happened to a Run, in the one order in which its sampler hears of it.

Events of a Run stand in its result queue until the collector has concluded them.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from orchestrator.ids import group_of


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events; the class name is the tag on the wire."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier Groups of the same dataset row came to, as members, old ones counting less."""

    solved: float = 0.0
    failed: float = 0.0
    batches: int = 0
    """`SamplerState.batches_delivered` when it was noted."""


class PromptFed(Event, frozen=True):
    """A Prompt became a Group; its first members' Jobs stand on the task queue."""

    group_id: str
    row: str = ""
    """The same for every Prompt made of one dataset row; empty where no history is kept."""
    tried: Tried | None = None


class ResultAccepted(Event, frozen=True):
    """The one completed Result of a Job was stored."""

    job_id: str
    reward: float
    weight_version: int = 0
    """Of its oldest token."""
    seconds: float = 0.0
    """Time on the Slot, without that parked."""


class Ending(StrEnum):
    """Why an attempt ended without an accepted Result."""

    STOPPED = "stopped"
    """Nobody wants it any more."""
    FAILED = "failed"
    """Lost with its server, or failed by its infrastructure."""


class AttemptEnded(Event, frozen=True):
    """An attempt took a Slot's time and gave no Result."""

    job_id: str
    seconds: float
    ending: Ending


class JobDied(Event, frozen=True):
    """A Job used up its infrastructure failures."""

    job_id: str
    reason: str


class JobCancelled(Event, frozen=True):
    """An operator wants neither the Job nor, therefore, its Group."""

    job_id: str


class BatchRequested(Event, frozen=True):
    batch_id: str
    requested_batch_size: int
    weight_version: int = 0
    """The weights that the Batch will update."""
    begun: dict[str, int] = {}
    """Leased Job -> the weight version it began under."""


class BatchAcknowledged(Event, frozen=True):
    batch_id: str


class RunRetried(Event, frozen=True):
    """The trainer knows that its Groups died, and goes on."""


class RunClosed(Event, frozen=True):
    """The trainer is done with the Run."""


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
