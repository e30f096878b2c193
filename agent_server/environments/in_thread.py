"""Environments that run in the thread of their attempt: cheap, and for our own code only.

The environment's answers are checked, and whatever it raises becomes one sentence. One that waits
for somebody else has a `close` that ends the wait. Other code that does not come back cannot be
ended here: it keeps its thread and its Slot.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

from agent_server.environments.protocol import (
    Environment,
    EnvironmentFailed,
    EnvironmentKilled,
    EnvironmentKind,
    MakeEnvironment,
    Observation,
    Opening,
    Response,
    declared_needs,
)
from agent_server.failures import MAX_SHOWN_CHARACTERS, one_sentence
from agent_server.repositories import NO_REPOSITORIES, Repositories
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.rewards.protocol import Rewards
from agent_server.sandbox.protocol import Sandbox
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import ChatMessage, Grade, Prompt


class InThread:
    """An `Episode`."""

    def __init__(
        self,
        make: MakeEnvironment,
        rewards: Rewards = NO_REWARDS,
        repositories: Repositories = NO_REPOSITORIES,
    ) -> None:
        needs = declared_needs(make)
        given = ((rewards, needs.rewards), (repositories, needs.repositories))
        self._make = partial(make, *(each for each, needed in given if needed))
        self._environment: Environment | None = None
        self._killed = False

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        with self._guarding("start"):
            self._environment = self._make()
            opening: object = self._environment.start(prompt, sandbox)
            if not isinstance(opening, Opening):
                opening = Opening(messages=tuple(cast(Iterable[ChatMessage], opening)))
            if not all(isinstance(message, ChatMessage) for message in opening.messages):
                raise EnvironmentFailed(
                    f"start() must give ChatMessages, got {_shown(opening.messages)}"
                )
            return opening

    def step(self, response: Response) -> Observation:
        with self._guarding("step"):
            observation: object = self._begun.step(response)
            if not isinstance(observation, Observation):
                raise EnvironmentFailed(
                    f"step() must give an Observation, got {_shown(observation)}"
                )
            return observation

    def solve(self) -> None:
        with self._guarding("solve"):
            solve = getattr(self._begun, "solve", None)
            if solve is None:
                raise EnvironmentFailed(
                    "the environment cannot solve its rows", fix="give its class a method solve()"
                )
            solve()

    def grade(self) -> Grade:
        with self._guarding("grade"):
            try:
                grade = self._begun.grade()
                return grade if isinstance(grade, Grade) else Grade(reward=grade)
            except InvalidMessage as error:
                kind = type(self._begun)
                raise EnvironmentFailed(
                    f"the environment {kind.__module__}:{kind.__qualname__} gave no grade: {error}"
                ) from error

    @property
    def patch(self) -> str | None:
        patch: str | None = getattr(self._environment, "patch", None)
        return patch

    def kill(self) -> None:
        self._killed = True
        self.close()

    def close(self) -> None:
        if (close := getattr(self._environment, "close", None)) is not None:
            close()

    @contextmanager
    def _guarding(self, method: str) -> Iterator[None]:
        """Turn whatever the environment's method raises into `EnvironmentFailed`."""
        try:
            yield
        except BaseException as error:  # the boundary of others' code, which may call sys.exit, too
            if self._killed:
                raise EnvironmentKilled("the environment was killed") from error
            if isinstance(error, EnvironmentFailed | Unavailable):  # the latter is not its fault
                raise
            raise EnvironmentFailed(one_sentence(f"the environment's {method}", error)) from error

    @property
    def _begun(self) -> Environment:
        assert self._environment is not None, "start comes first"
        return self._environment


def in_thread(
    make: MakeEnvironment,
    rewards: Rewards = NO_REWARDS,
    repositories: Repositories = NO_REPOSITORIES,
) -> EnvironmentKind:
    """The kind of an environment that runs in the threads of its attempts. Raises `TypeError`."""
    return EnvironmentKind(partial(InThread, make, rewards, repositories), declared_needs(make))


def _shown(given: object) -> str:
    return repr(given)[:MAX_SHOWN_CHARACTERS]
