"""What an environment is: it asks, it reacts to each response, and it grades.

Its class says in `needs` what it needs of a server. One object serves one trajectory. Whatever the
policy writes is an observation or a reward; an exception means that the environment or this machine
failed, and never becomes a reward.

The server sees an environment as an `Episode`, of which there are two kinds: `InThread` for our own
environments, and `hosted.episode.HostedEpisode` for those of other packages.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from rollyard.errors import RollyardError
from rollyard.messages import ChatMessage, Prompt


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment needs of the agent server; without it, a conversation and no more."""

    sandbox: SandboxNeeds | None = None
    """None: no sandbox is opened."""
    agent: str = "tool_loop"
    """By the name of its entry point."""
    tags: tuple[str, ...] = ()
    """What an operator says of servers with `--tag`, such as hardware that they have."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says to a response."""

    messages: tuple[ChatMessage, ...] = ()
    done: bool = False
    """The episode is over; `messages` are then not shown to the policy."""


class Environment(Protocol):
    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        """The conversation the policy begins with. Raises `InvalidMessage` for a bad row."""
        ...

    def step(self, response: str) -> Observation:
        """React to one response that the policy ended itself."""
        ...

    def grade(self) -> float:
        """The reward for what the steps have seen; also of an episode that a limit ended."""
        ...


MakeEnvironment = Callable[[], Environment]


class EnvironmentFailed(RollyardError):
    """The environment's code failed on this row, as it would on any server."""


class EnvironmentKilled(EnvironmentFailed):
    """It was killed because its time was over or nobody needs it."""


class Episode(Environment, Protocol):
    """An environment at work on one trajectory. `start`, `step` and `grade` raise nothing but
    `EnvironmentFailed`, and `Unavailable` when this server is to blame."""

    def kill(self) -> None:
        """End what runs, from any thread, without waiting: the call under way raises
        `EnvironmentKilled`. An environment that runs in a thread of this process goes on."""
        ...

    def close(self) -> None:
        """Give everything back; may be done twice."""
        ...


MakeEpisode = Callable[[], Episode]


class EnvironmentKind(msgspec.Struct, frozen=True):
    """One environment that this server can run."""

    make: MakeEpisode
    needs: Needs = Needs()


def declared_needs(make: MakeEnvironment) -> Needs:
    """What the environment's class says in `needs`. Raises `TypeError` if that is no `Needs`."""
    needs = getattr(make, "needs", Needs())
    if not isinstance(needs, Needs):
        raise TypeError(f"its `needs` must be a Needs of {__name__}, got {needs!r}")
    return needs
