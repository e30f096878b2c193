"""An environment that runs in the thread of its attempt: cheap, and for our own code only.

What the environment gives is checked, and whatever it raises becomes one sentence. Code that does
not come back cannot be ended here: it keeps its thread and its Slot.
"""

import math
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from agent_server.environments.protocol import (
    Environment,
    EnvironmentFailed,
    EnvironmentKind,
    MakeEnvironment,
    Observation,
    declared_needs,
)
from agent_server.sandbox.protocol import Sandbox
from rollyard.errors import RollyardError, Unavailable
from rollyard.messages import ChatMessage, Prompt

T = TypeVar("T")

_MAX_MESSAGE_CHARACTERS = 500


class InThread:
    """An `Episode`."""

    def __init__(self, make: MakeEnvironment) -> None:
        self._make = make
        self._environment: Environment | None = None

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        return _guarded("start", lambda: self._start(prompt, sandbox))

    def step(self, response: str) -> Observation:
        return _guarded("step", lambda: _observation(self._begun.step(response)))

    def grade(self) -> float:
        return _guarded("grade", lambda: _reward(self._begun.grade()))

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def _begun(self) -> Environment:
        assert self._environment is not None, "start comes first"
        return self._environment

    def _start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._environment = self._make()
        opening = tuple(self._environment.start(prompt, sandbox))
        if not all(isinstance(message, ChatMessage) for message in opening):
            raise EnvironmentFailed(f"start() must give ChatMessages, got {_shown(opening)}")
        return opening


def in_thread(make: MakeEnvironment) -> EnvironmentKind:
    """The environment as one to be run in the threads of its attempts. Raises `TypeError`."""
    return EnvironmentKind(partial(InThread, make), declared_needs(make))


def _guarded(method: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except (EnvironmentFailed, Unavailable):  # the latter is this server's doing
        raise
    except BaseException as error:  # the boundary of others' code, which may call sys.exit, too
        raise EnvironmentFailed(_describe(method, error)) from error


def _describe(method: str, error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # it is not ours
        message = "(its message cannot be shown)"
    if isinstance(error, RollyardError):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    where = f"{last.name} ({last.filename.rpartition('/')[2]}:{last.lineno})"
    cut = message[:_MAX_MESSAGE_CHARACTERS]
    return f"the environment's {method} failed: {type(error).__name__} in {where}: {cut}"


def _observation(given: object) -> Observation:
    if not isinstance(given, Observation):
        raise EnvironmentFailed(f"step() must give an Observation, got {_shown(given)}")
    return given


def _shown(given: object) -> str:
    return repr(given)[:_MAX_MESSAGE_CHARACTERS]


def _reward(given: Any) -> float:
    """A bool or a number of another library is as good as a float."""
    reward = float(given)
    if not math.isfinite(reward):
        raise EnvironmentFailed(f"grade() must give a finite reward, got {reward}")
    return reward
