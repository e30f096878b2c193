"""What happened to a Run, in the one order in which its sampler hears of it.

Events of a Run stand in its result queue until the collector has concluded them.
"""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events; the class name is the tag on the wire."""


class PromptFed(Event, frozen=True):
    """A Prompt became a Group; its Jobs stand on the task queue."""

    group_id: str


class ResultAccepted(Event, frozen=True):
    """The one completed Result of a Job was stored."""

    job_id: str
    reward: float


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


class BatchAcknowledged(Event, frozen=True):
    batch_id: str


class RunClosed(Event, frozen=True):
    """The trainer is done with the Run."""


AnyEvent = (
    PromptFed
    | ResultAccepted
    | JobDied
    | JobCancelled
    | BatchRequested
    | BatchAcknowledged
    | RunClosed
)


def job_id(run_id: str, group_id: str, member: int) -> str:
    return f"{run_id}/{group_id}/{member}"


def group_and_member(job: str) -> tuple[str, int]:
    _, group_id, member = job.split("/")
    return group_id, int(member)


def run_of(job: str) -> str:
    return job.split("/", 1)[0]
