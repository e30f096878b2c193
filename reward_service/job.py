"""The one function that workers run: the grading of one task, in a process of its own."""

from importlib.metadata import EntryPoint
from typing import Any

import msgspec

from agent_server.rewards.grading import graded
from agent_server.rewards.protocol import ScoreTask
from reward_service.outcome import TaskOutcome, failed
from rollyard.codec import learnt
from rollyard.errors import RollyardError


def score(grader: str, task: dict[str, Any]) -> Any:
    """What became of the task, as plain JSON. `grader` is named as in an entry point."""
    try:
        grade = graded(
            EntryPoint(grader, grader, "").load(), msgspec.convert(task, learnt(ScoreTask))
        )
        outcome = TaskOutcome(grade=grade)
    except RollyardError as error:
        outcome = failed(error)
    return msgspec.to_builtins(outcome)
