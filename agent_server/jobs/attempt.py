"""One running Lease: its stage, what it holds, how it is told to stop, and how it ended.

An attempt ends once: the first of its Results is the Result, whoever makes it.
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
)
from agent_server.jobs.slots import Crowded
from agent_server.sandbox.protocol import Sandbox
from llm_servers.generation import Unlabelled
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import (
    Assignment,
    Blame,
    ChatMessage,
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
"""What would be raised on any server."""


class Stage(StrEnum):
    INIT = "init"
    RUN = "run"
    EVAL = "eval"


class Attempt:
    def __init__(self, assignment: Assignment, make_episode: MakeEpisode) -> None:
        self.job: Job = assignment.job
        self.lease: Lease = assignment.lease
        self.episode: Episode = make_episode()
        self.sandbox: Sandbox | None = None
        self.opening: tuple[ChatMessage, ...] = ()
        self.prompt: Sequence[int] = ()
        """`opening` as token ids."""
        self.trajectory: Trajectory | None = None
        self.reward: float | None = None
        self.stage = Stage.INIT
        self.deadline: Deadline | None = None
        """Deadline of the stage."""
        self.parking = Parking(self.job.limits.parked_seconds)
        self.cancellation = StopSignal()
        """Given when nobody needs the Result any more."""
        self.ended = False
        """Whether its Result is made, even if its thread is still busy."""
        self._seconds: dict[str, float] = {}

    @property
    def name(self) -> str:
        """Unique among attempts; names the trajectory to the LLM servers."""
        return f"{self.lease.job_id}-a{self.lease.attempt}"

    @property
    def key(self) -> tuple[str, int]:
        return self.lease.job_id, self.lease.attempt

    @property
    def cancelled(self) -> bool:
        return self.cancellation.reason is not None

    @property
    def timings(self) -> Timings:
        return Timings(**self._seconds, parked_seconds=self.parking.seconds)

    @contextmanager
    def enter(self, stage: Stage) -> Iterator[StopSignal]:
        """The stage's stop signal, which a cancellation gives, even one that came before."""
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
        """End what runs for it when it was stopped. A tool that is cut off at the end of its time
        leaves an episode that can be graded, so that this one is spared until its grace is over."""
        if self.sandbox is not None:
            self.sandbox.close()
        if self.cancelled or self.stage is not Stage.RUN:
            self.episode.kill()


def completed(attempt: Attempt) -> Result:
    return Result(
        lease=attempt.lease,
        outcome=Outcome.COMPLETED,
        reward=attempt.reward,
        trajectory=attempt.trajectory,
    )


def cancelled(attempt: Attempt, reason: str = "cancelled") -> Result:
    return Result(lease=attempt.lease, outcome=Outcome.CANCELLED, error=reason)


def given_up(attempt: Attempt, grace_seconds: float) -> Result:
    """What an attempt has come to that ignored its end for so long."""
    return cancelled(attempt) if attempt.cancelled else _overdue(attempt, grace_seconds)


def unfinished(attempt: Attempt, error: BaseException) -> Result:
    """What an attempt that raised `error` has come to."""
    if attempt.cancelled:
        return cancelled(attempt)
    if isinstance(error, Crowded | ParkedTooLong | Unlabelled):  # neither the Job's fault, nor ours
        return cancelled(attempt, str(error))
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
    # a reason may quote bytes that are no text, such as a file's name
    reason = reason.encode(errors="backslashreplace").decode()
    return Result(lease=attempt.lease, outcome=Outcome.INFRA_FAILED, error=reason, blame=blame)
