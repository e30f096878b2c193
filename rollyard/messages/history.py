"""What became of a Job, attempt by attempt: for people, not for decisions."""

from enum import StrEnum

from rollyard.messages.base import Message
from rollyard.messages.result import Result
from rollyard.messages.run import Prompt


class JobState(StrEnum):
    """Where a Job is; it is in exactly one place."""

    QUEUED = "queued"
    LEASED = "leased"
    PARKED = "parked"
    """Leased, and standing still until the trainer wants its next Batch."""
    ACCEPTED = "accepted"
    DEAD = "dead"


class AttemptOutcome(StrEnum):
    RUNNING = "running"
    """Or parked."""
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
    """The Run had no use for it for now."""
    GIVEN_BACK = "given_back"
    """It never began, or its agent server left."""
    WITHDRAWN = "withdrawn"
    """Its Result was accepted, and too old for the Batch that was sampled then."""


class AttemptRecord(Message, frozen=True):
    """One lease of a Job. Times are unix seconds of the queues."""

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
    """Jobs of its Run before it on the task queue."""
    avoids: tuple[str, ...] = ()
    """Servers on which it was lost, or its row failed: it leaves them to other Jobs while another
    server takes Jobs."""
    avoids_seconds: float = 0.0
    """For how long it still does so."""
    reward: float | None = None


class DeadJob(Message, frozen=True):
    """A Job that used up its attempts. Its Group was dropped; `requeue` feeds its Prompt anew."""

    job_id: str
    died_at: float
    reason: str
    prompt: Prompt
    attempts: tuple[AttemptRecord, ...] = ()


class JobList(Message, frozen=True):
    jobs: tuple[JobRecord, ...]


class DeadJobs(Message, frozen=True):
    jobs: tuple[DeadJob, ...]


class JobView(Message, frozen=True):
    """A Job as people look at it: what it was given, what became of it, and what it produced."""

    job: JobRecord
    reason: str
    """What it waits for, or how it ended."""
    prompt: Prompt | None = None
    """None once its Group is dropped."""
    result: Result | None = None
    """Of one that is accepted, until its Batch is acknowledged."""


class JobViews(Message, frozen=True):
    jobs: tuple[JobView, ...]


class Requeued(Message, frozen=True):
    """The Group that takes the place of the dead Job's."""

    group_id: str
