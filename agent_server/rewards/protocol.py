"""Rewards: the grading of an answer by code that is not the environment's own.

A grader is a pure function of one task. A package names its graders in the entry-point group
`rollyard.graders`, each by the `data_source` of the rows that it grades.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from rollyard.messages import Grade, Message

GroundTruth = str | dict[str, Any] | list[Any]


class ScoreTask(Message, frozen=True, kw_only=True):
    """One answer to grade. The fields are those of public reward servers."""

    data_source: str
    """Name of the grader."""
    solution_str: str
    """The policy's answer."""
    ground_truth: GroundTruth
    extra_info: dict[str, Any] = msgspec.field(default_factory=dict)
    """What else the grader needs of the row."""


Grader = Callable[[ScoreTask], Grade]


class Rewards(Protocol):
    def score(self, task: ScoreTask) -> Grade:
        """The grade of the answer. Raises `GraderFailed` for a task that its grader cannot grade on
        any machine, and `Unavailable` if it could not be graded now."""
        ...
