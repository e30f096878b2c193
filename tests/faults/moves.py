"""The queues' moves as these tests make them, one Job at a time."""

from collections.abc import Callable

from orchestrator.queues import Queues
from rollyard.messages import Assignment, Grade, Outcome, Prompt, Receipt, Result
from tests.orchestrator.fake_agents import trajectory_of

Reward = Callable[[str], float]
"""Of a Job, by its id."""


def submit(queues: Queues, run_id: str, prompt: Prompt) -> None:
    queues.tasks.submit(run_id, [prompt])


def lease(queues: Queues) -> Assignment | None:
    return next(iter(queues.leases.lease()), None)


def report(queues: Queues, result: Result, *, more: bool = False) -> Receipt:
    (reported,) = queues.leases.report([result], more=more)
    return reported.receipt


def completed(assignment: Assignment, reward: float = 1.0) -> Result:
    return Result(
        lease=assignment.lease,
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=reward),
        trajectory=trajectory_of(assignment.job, reward),
    )


def failed(assignment: Assignment, reason: str = "out of order") -> Result:
    return Result(lease=assignment.lease, outcome=Outcome.INFRA_FAILED, error=reason)
