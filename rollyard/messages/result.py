"""Results: what an attempt at a Job reports, and the answer to it."""

from enum import StrEnum

from rollyard.messages.base import Message, check
from rollyard.messages.grade import Grade
from rollyard.messages.trajectory import PackedTrajectory, Trajectory
from rollyard.messages.work import Assignment, Lease


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    """The policy reached an end: it has a reward, also when it is wrong or was truncated."""
    INFRA_FAILED = "infra_failed"
    """The infrastructure failed: never a reward, retried up to the Run's budget."""
    CANCELLED = "cancelled"
    """The attempt was given back, uncharged; its Job is queued again if it is still wanted."""


class Blame(StrEnum):
    """Cause of an infrastructure failure, as far as the agent server can tell."""

    SERVER = "server"
    """The agent server, its sandbox, or the LLM servers: another server may do better."""
    ROW = "row"
    """The Prompt, or its environment's code on it: it fails wherever it runs, so it is not held
    against the server that tried it."""


class Timings(Message, frozen=True):
    """Seconds that an attempt spent in each stage, excluding time parked."""

    init_seconds: float = 0.0
    run_seconds: float = 0.0
    eval_seconds: float = 0.0
    parked_seconds: float = 0.0


class AnyResult(Message, frozen=True):
    """A Result, packed or not, by what the orchestrator decides on. It crosses no wire itself."""

    lease: Lease
    outcome: Outcome
    grade: Grade | None = None
    trajectory: Trajectory | PackedTrajectory | None = None
    error: str = ""
    """Reason of an outcome other than `completed`."""
    blame: Blame = Blame.SERVER
    """Cause of the failure; only meaningful if the outcome is `infra_failed`."""
    timings: Timings = Timings()

    def __post_init__(self) -> None:
        if self.outcome is Outcome.COMPLETED:
            check(self.trajectory is not None, "a completed result needs its trajectory")
            check(self.grade is not None, "a completed result needs its grade")
        else:
            check(self.grade is None, f"a result that {self.outcome} must not carry a grade")

    @property
    def reward(self) -> float | None:
        """The grade's reward; None unless the outcome is `completed`."""
        return None if self.grade is None else self.grade.reward


class Result(AnyResult, frozen=True):
    """How one attempt of a Job ended. Exactly one completed Result is accepted per Job."""

    trajectory: Trajectory | None = None


class PackedResult(AnyResult, frozen=True):
    """A Result as it crosses the orchestrator: the same on the wire."""

    trajectory: PackedTrajectory | None = None


class Receipt(StrEnum):
    """Fate of a reported Result."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same attempt was accepted before, and its reply was lost."""
    REQUEUED = "requeued"
    DEAD = "dead"
    STALE = "stale"
    """The attempt no longer holds the Lease: nothing of the Result was kept."""


class Reported(Message, frozen=True):
    """The answer to a Result."""

    receipt: Receipt
    assignment: Assignment | None = None
    """The Slot's next Job, if one was asked for and was waiting."""
