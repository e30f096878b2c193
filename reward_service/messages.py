"""What the reward service answers."""

import msgspec

from reward_service.outcome import TaskOutcome
from rollyard.messages import Failure, Message


class Score(Message, frozen=True, omit_defaults=True):
    """The grade of one task, in the words of public reward servers. In a batch, a task that was not
    graded has a `failure` in place of its `score`."""

    score: float | None = None
    components: dict[str, float] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    reason: str = ""
    failure: Failure | None = None


class RewardServiceStatus(Message, frozen=True):
    """The work and the workers of a reward service."""

    tasks: int
    """Tasks that wait or run."""
    most_tasks: int
    workers: int
    most_workers: int
    worker_seconds: float
    """The lifetimes of all workers together, so far."""
    graders: tuple[str, ...]
    """The `data_source` of everything that can be graded."""


def score_of(outcome: TaskOutcome) -> Score:
    if outcome.grade is None:
        return Score(failure=outcome.failure)
    grade = outcome.grade
    return Score(grade.reward, grade.components, grade.metrics, grade.reason)
