"""How an attempt ended, as a Result. The runner adds the timings."""

import structlog

from agent_server.attempt import Attempt
from agent_server.environments.protocol import EnvironmentFailed, EnvironmentKilled
from agent_server.parking import ParkedTooLong
from agent_server.stop import Stopped
from llm_servers.generation import Unlabelled
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import Blame, Outcome, Result
from serving.logs import of_lease

log = structlog.get_logger()

_ROWS_DOING = (EnvironmentFailed, InvalidMessage)
"""What would be raised on any server."""


def completed(attempt: Attempt) -> Result:
    return Result(
        lease=attempt.lease,
        outcome=Outcome.COMPLETED,
        reward=attempt.reward,
        trajectory=attempt.trajectory,
    )


def failed(attempt: Attempt, reason: str, blame: Blame = Blame.SERVER) -> Result:
    # a reason may quote bytes that are no text, such as a file's name
    reason = reason.encode(errors="backslashreplace").decode()
    return Result(lease=attempt.lease, outcome=Outcome.INFRA_FAILED, error=reason, blame=blame)


def cancelled(attempt: Attempt, reason: str = "cancelled") -> Result:
    return Result(lease=attempt.lease, outcome=Outcome.CANCELLED, error=reason)


def overdue(attempt: Attempt, seconds: float) -> str:
    return f"{attempt.stage} did not end within {seconds:g} s"


def unfinished(attempt: Attempt, error: BaseException, seconds: float) -> Result:
    """What an attempt that raised `error` has come to; `seconds` is what its stage may take."""
    if attempt.cancelled:
        return cancelled(attempt)
    if isinstance(error, ParkedTooLong | Unlabelled):  # neither is the Job's fault, nor ours
        return cancelled(attempt, str(error))
    if isinstance(error, Stopped | EnvironmentKilled):
        reason = overdue(attempt, seconds)
    elif isinstance(error, RollyardError):
        reason = str(error)
    else:
        log.exception(
            "stage_failed", **of_lease(attempt.lease), stage=attempt.stage, exc_info=error
        )
        reason = f"{type(error).__name__} in {attempt.stage}: {error}"
    blame = Blame.ROW if isinstance(error, _ROWS_DOING) else Blame.SERVER
    return failed(attempt, reason, blame)
