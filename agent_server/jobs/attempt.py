"""Attempts, the running Leases: their stages, what they hold, how they are stopped, how they end.

An attempt ends once: only its first Result counts, whoever makes it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import structlog

from agent_server.control.deadline import Deadline
from agent_server.control.parking import ParkedTooLong, Parking
from agent_server.control.stop import Stopped, StopSignal
from agent_server.environments.protocol import (
    EnvironmentFailed,
    EnvironmentKilled,
    Episode,
    MakeEpisode,
    Opening,
)
from agent_server.jobs.slots import Crowded
from agent_server.sandbox.protocol import OpenSandbox
from llm_servers.generation import Unlabelled
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import (
    Assignment,
    Blame,
    Grade,
    Job,
    Lease,
    Outcome,
    Result,
    Timings,
    Trajectory,
)
from serving.logs import of_lease

log = structlog.get_logger()

_ROWS_DOING = (EnvironmentFailed, InvalidMessage)
"""Errors that any server would raise for this row."""


class Stage(StrEnum):
    INIT = "init"
    RUN = "run"
    EVAL = "eval"


class Attempt:
    """The state of one attempt, and what it holds."""

    def __init__(self, assignment: Assignment, make_episode: MakeEpisode) -> None:
        self.job: Job = assignment.job
        self.lease: Lease = assignment.lease
        self.episode: Episode = make_episode()
        self.sandbox: OpenSandbox | None = None
        self.opening = Opening(messages=())
        self.prompt: Sequence[int] = ()
        """`opening` as token ids."""
        self.trajectory: Trajectory | None = None
        self.grade: Grade | None = None
        self.stage = Stage.INIT
        self.deadline: Deadline | None = None
        """Deadline of the stage."""
        self.parking = Parking(self.job.limits.parked_seconds)
        self.cancellation = StopSignal()
        """Signal that nobody needs the Result any more."""
        self.ended = False
        """True once its Result is made, even if its thread is still busy."""
        self._seconds: dict[str, float] = {}

    @property
    def name(self) -> str:
        """A name that no other attempt has; the LLM servers know the trajectory by it."""
        return f"{self.lease.job_id}-a{self.lease.attempt}"

    @property
    def cancelled(self) -> bool:
        return self.cancellation.reason is not None

    @property
    def timings(self) -> Timings:
        return Timings(**self._seconds, parked_seconds=self.parking.seconds)

    @contextmanager
    def enter(self, stage: Stage) -> Iterator[StopSignal]:
        """Enter the stage and yield its stop signal, which a cancellation gives, also one that came
        before."""
        self.stage = stage
        stop = StopSignal()
        with self.cancellation.giving(stop):
            yield stop

    def spent(self, stage: Stage, since: float) -> float:
        """Note and return the seconds the stage has worked since `since` on the monotonic clock."""
        parked = self.parking.seconds if stage is Stage.RUN else 0.0  # nothing else is parked
        seconds = self._seconds[f"{stage}_seconds"] = max(0.0, time.monotonic() - since - parked)
        return seconds

    def interrupt(self) -> None:
        """End what runs for the attempt once it is stopped."""
        # A tool that is cut off at the end of RUN's time leaves an episode that can be graded, from
        # the files that it has written: it is spared until its grace is over.
        spared = self.stage is Stage.RUN and not self.cancelled
        if self.sandbox is not None:
            if spared:
                self.sandbox.interrupt()
            else:
                self.sandbox.close()
        if not spared:
            self.episode.kill()


def completed(attempt: Attempt) -> Result:
    return Result(
        lease=attempt.lease,
        outcome=Outcome.COMPLETED,
        grade=attempt.grade,
        trajectory=attempt.trajectory,
    )


def cancelled(lease: Lease, reason: str = "cancelled") -> Result:
    return Result(lease=lease, outcome=Outcome.CANCELLED, error=reason)


def given_up(attempt: Attempt, grace_seconds: float) -> Result:
    """The Result of an attempt that ignored its end for `grace_seconds`."""
    return cancelled(attempt.lease) if attempt.cancelled else _overdue(attempt, grace_seconds)


def unfinished(attempt: Attempt, error: BaseException) -> Result:
    """The Result of an attempt that raised `error`."""
    if attempt.cancelled:
        return cancelled(attempt.lease)
    if isinstance(error, Crowded | ParkedTooLong | Unlabelled):  # neither the Job's fault, nor ours
        return cancelled(attempt.lease, str(error))
    blame = Blame.ROW if isinstance(error, _ROWS_DOING) else Blame.SERVER
    if isinstance(error, Stopped | EnvironmentKilled):
        return _overdue(attempt, 0.0, blame)
    if isinstance(error, RollyardError):
        return _failed(attempt, str(error), blame)
    log.exception("stage_failed", **of_lease(attempt.lease), stage=attempt.stage, exc_info=error)
    return _failed(attempt, f"{type(error).__name__} in {attempt.stage}: {error}", blame)


def _overdue(attempt: Attempt, grace_seconds: float, blame: Blame = Blame.SERVER) -> Result:
    assert attempt.deadline is not None
    seconds = attempt.deadline.seconds + grace_seconds
    return _failed(attempt, f"{attempt.stage} did not end within {seconds:g} s", blame)


def _failed(attempt: Attempt, reason: str, blame: Blame) -> Result:
    # A reason may quote bytes that are not text, such as a file's name.
    reason = reason.encode(errors="backslashreplace").decode()
    return Result(lease=attempt.lease, outcome=Outcome.INFRA_FAILED, error=reason, blame=blame)
