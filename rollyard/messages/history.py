"""Histories of Jobs, attempt by attempt: for people, not for decisions."""

from enum import StrEnum

from rollyard.messages.base import Message
from rollyard.messages.result import Result
from rollyard.messages.run import Prompt


class JobState(StrEnum):
    """The one place where a Job is."""

    QUEUED = "queued"
    LEASED = "leased"
    PARKED = "parked"
    """Leased, and standing still until the trainer wants its next Batch."""
    ACCEPTED = "accepted"
    DEAD = "dead"


class AttemptOutcome(StrEnum):
    """Fate of an attempt."""

    RUNNING = "running"
    """The attempt is not over: it runs, or is parked."""
    ACCEPTED = "accepted"
    FAILED = "failed"
    """Its agent server reported an infrastructure failure."""
    ROW_FAILED = "row_failed"
    """The Prompt, or its environment's code on it, failed: no fault of the agent server."""
    LOST = "lost"
    """Its agent server fell silent, restarted, or forgot it."""
    CANCELLED = "cancelled"
    """Its agent server handed it back."""
    STOPPED = "stopped"
    """The Run did not need its Job for the time being."""
    GIVEN_BACK = "given_back"
    """The attempt never began, or its agent server left."""
    WITHDRAWN = "withdrawn"
    """Its Result was accepted, then withdrawn as too old for the Batch being sampled."""


class AttemptRecord(Message, frozen=True):
    """One attempt at a Job. Times are unix seconds by the clock of the store."""

    attempt: int
    server_id: str
    leased_at: float
    outcome: AttemptOutcome
    ended_at: float | None = None
    reason: str = ""


class JobRecord(Message, frozen=True):
    """A Job and its last attempts, oldest first; older ones are forgotten."""

    job_id: str
    state: JobState
    attempts: tuple[AttemptRecord, ...] = ()
    queue_position: int | None = None
    """Number of Jobs of its Run and kind before it on the task queue; None if it is not queued."""
    environment: str = ""
    """Environment that its agent server must have; only told of a queued Job that was asked for."""
    tags: tuple[str, ...] = ()
    """Tags that its agent server must have, told as the environment is."""
    avoids: tuple[str, ...] = ()
    """Agent servers on which it was lost, or its row failed: it is not leased to them while
    another server takes Jobs."""
    avoids_seconds: float = 0.0
    """Seconds for which it still avoids them."""
    reward: float | None = None


class DeadJob(Message, frozen=True):
    """A Job that used up its attempts. Its Group was dropped; `requeue` feeds its Prompt anew."""

    job_id: str
    died_at: float
    reason: str
    prompt: Prompt
    attempts: tuple[AttemptRecord, ...] = ()


class GoneGroups(Message, frozen=True):
    """Groups of a Run that were dropped for one reason. Nothing but their number is kept."""

    run_id: str
    fate: str
    """Name of their counter, `groups_<fate>` of `Counters`."""
    groups: int
    reason: str
    """One clause on why they were dropped."""


class JobList(Message, frozen=True):
    """Jobs with their histories."""

    jobs: tuple[JobRecord, ...]
    gone: tuple[GoneGroups, ...] = ()
    """Groups whose Jobs cannot be listed any more; told where Jobs in all states are asked for."""


class DeadJobs(Message, frozen=True):
    """Jobs that used up their attempts."""

    jobs: tuple[DeadJob, ...]


class JobView(Message, frozen=True):
    """A Job as people look at it: what it was given, what became of it, and what it produced."""

    job: JobRecord
    reason: str
    """One sentence that says what the Job waits for, or how it ended."""
    prompt: Prompt | None = None
    """The Group's Prompt; None once the Group is dropped."""
    result: Result | None = None
    """The accepted Result; None before that, and once its Batch is acknowledged."""


class JobViews(Message, frozen=True):
    """A Job, or the first members of a Group, as people look at them."""

    jobs: tuple[JobView, ...]


class Requeued(Message, frozen=True):
    """The Group that takes the place of the dead Job's."""

    group_id: str
