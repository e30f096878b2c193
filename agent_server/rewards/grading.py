"""The process of a grader: it grades one task after the other."""

import os
import socket
from collections.abc import Callable
from functools import partial

from agent_server.environments.hosted import frames
from agent_server.failures import MAX_SHOWN_CHARACTERS, one_sentence
from agent_server.rewards.protocol import Grader, ScoreTask
from rollyard.errors import GraderFailed, RollyardError, Unavailable
from rollyard.messages import Grade


def serve(server: socket.socket, grader: Grader) -> None:
    """Grade tasks until the server closes its end."""
    process = os.getpid()
    while isinstance(request := frames.receive(server), frames.ScoreFrame):
        answer = answer_to(request.task, partial(graded, grader))
        if os.getpid() != process:
            return  # the grader has forked, and only one of the two may answer
        frames.send(server, answer)


def graded(grader: Grader, task: ScoreTask) -> Grade:
    """The grade that the grader gives. Raises `GraderFailed`, and `Unavailable` if it needs
    something that cannot be had now, such as a judge."""
    try:
        grade: object = grader(task)
        if isinstance(grade, Grade):
            return grade
    except Unavailable:
        raise
    except BaseException as error:  # the boundary of others' code, which may call sys.exit, too
        what = f"the grader of {task.data_source!r}"
        raise GraderFailed(one_sentence(what, error)) from error
    shown = repr(grade)[:MAX_SHOWN_CHARACTERS]
    raise GraderFailed(f"the grader of {task.data_source!r} must give a Grade, got {shown}")


def answer_to(task: ScoreTask, score: Callable[[ScoreTask], Grade]) -> frames.Frame:
    """The answer to a `ScoreFrame`."""
    try:
        return frames.Graded(score(task))
    except RollyardError as error:
        reason = str(error).encode(errors="backslashreplace").decode()
        return frames.Failed(reason, unavailable=isinstance(error, Unavailable))
