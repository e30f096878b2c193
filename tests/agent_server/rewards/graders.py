"""Graders that are right, and graders that go wrong in every way."""

import ctypes
import os
import secrets
import signal
import subprocess
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from agent_server.rewards.protocol import ScoreTask, warmed_by
from rollyard.errors import Unavailable
from rollyard.messages import Grade

HERE = __name__
IDENTITY: list[float] = []
"""Number of this process, once it has graded: the kernel gives what names a process twice."""


def points(*names: str) -> list[EntryPoint]:
    """Entry points of these graders, each by the name of its function."""
    return [EntryPoint(name, f"{HERE}:{name}", "rollyard.graders") for name in names]


def same(task: ScoreTask) -> Grade:
    """Whether the answer is the expected one; the process that graded it is a metric."""
    right = float(task.solution_str == task.ground_truth)
    reason = "as expected" if right else f"expected {task.ground_truth}"
    if not IDENTITY:
        IDENTITY.append(float(secrets.randbelow(1 << 53)))
    return Grade(right, {"same": right}, {"process": IDENTITY[0]}, reason)


WARMED_UP: list[int] = []


@warmed_by(lambda: WARMED_UP.append(os.getpid()))
def warm(task: ScoreTask) -> Grade:
    """The number of times that it was warmed up."""
    return Grade(float(len(WARMED_UP)))


def raises(task: ScoreTask) -> Grade:
    raise ValueError(f"no number in {task.solution_str!r}")


def gives_text(task: ScoreTask) -> Any:
    return "1.0"


def gives_nan(task: ScoreTask) -> Grade:
    return Grade(float("nan"))


def lacks_a_judge(task: ScoreTask) -> Grade:
    raise Unavailable("the judge is busy")


def leaves(task: ScoreTask) -> Grade:
    print("the grader gives up")
    os._exit(7)


def crashes(task: ScoreTask) -> Grade:
    ctypes.string_at(0)
    raise AssertionError("still here")


def hoards(task: ScoreTask) -> Grade:
    return Grade(float(len(b"x" * (1 << 40))))


def sleeps(task: ScoreTask) -> Grade:
    """Right after as many seconds as the answer says."""
    time.sleep(float(task.solution_str))
    return Grade(1.0)


def hangs(task: ScoreTask) -> Grade:
    """Starts a daemon, blocks every signal, says so in a file, and never comes back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
    Path(task.solution_str).touch()
    while True:
        time.sleep(3600)


def second_time(task: ScoreTask) -> Grade:
    """Never comes back the first time, and is right the second time. The answer is a file that says
    that it has begun."""
    begun = Path(task.solution_str)
    if begun.exists():
        return Grade(1.0)
    begun.touch()
    while True:
        time.sleep(3600)


def first_time(task: ScoreTask) -> Grade:
    """Never comes back, and counts its attempts in a directory, which is the answer."""
    attempts = Path(task.solution_str)
    (attempts / str(len(list(attempts.iterdir())))).touch()
    while True:
        time.sleep(3600)
