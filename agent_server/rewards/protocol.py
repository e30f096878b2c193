"""Rewards: the grading of an answer by code that is not the environment's own.

A grader is a pure function of one task. A package names its graders in the entry-point group
`rollyard.graders`, each by the `data_source` of the rows that it grades.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol, TypeVar

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
T = TypeVar("T")

_WARM_UP = "_warm_up_before_fork"
"""Attribute of a grader, or a class, that has something to do before its first task."""


def warmed_by(warm_up: Callable[[], None]) -> Callable[[T], T]:
    """A decorator for graders and environments: `warm_up` is called once, before processes are
    forked for them, so that all of these have what it leaves in memory."""

    def marked(loaded: T) -> T:
        setattr(loaded, _WARM_UP, warm_up)
        return loaded

    return marked


def warm_up(loaded: object) -> None:
    """Warm up what is `warmed_by` something, or do nothing for anything else."""
    if isinstance(loaded, FunctionType | type):
        getattr(loaded, _WARM_UP, lambda: None)()


class Rewards(Protocol):
    def score(self, task: ScoreTask) -> Grade:
        """The grade of the answer. Raises `GraderFailed` for a task that its grader cannot grade on
        any machine, and `Unavailable` if it could not be graded now."""
        ...
