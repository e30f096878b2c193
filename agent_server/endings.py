"""How an attempt ended, as a Result. The runner adds the timings."""

from agent_server.attempt import Attempt
from rollyard.messages import Outcome, Result


def completed(attempt: Attempt) -> Result:
    return Result(
        lease=attempt.lease,
        outcome=Outcome.COMPLETED,
        reward=attempt.reward,
        trajectory=attempt.trajectory,
    )


def failed(attempt: Attempt, reason: str) -> Result:
    # a reason may quote bytes that are no text, such as a file's name
    reason = reason.encode(errors="backslashreplace").decode()
    return Result(lease=attempt.lease, outcome=Outcome.INFRA_FAILED, error=reason)


def cancelled(attempt: Attempt, reason: str = "cancelled") -> Result:
    return Result(lease=attempt.lease, outcome=Outcome.CANCELLED, error=reason)


def overdue(attempt: Attempt, seconds: float) -> str:
    return f"{attempt.stage} did not end within {seconds:g} s"
