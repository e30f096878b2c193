"""What an environment is: it asks, it reacts to each response, and it grades.

One object serves one trajectory. Whatever the policy writes is an observation or a reward; an
exception means that the environment or this machine failed, and never becomes a reward.

The server sees an environment as an `Episode`, of which there are two kinds: `InThread` for our own
environments, and `hosted.episode.HostedEpisode` for those of other packages.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from agent_server.sandbox.protocol import Sandbox
from rollyard.errors import RollyardError
from rollyard.messages import ChatMessage


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says to a response."""

    messages: tuple[ChatMessage, ...] = ()
    done: bool = False
    """The episode is over; `messages` are then not shown to the policy."""


class Environment(Protocol):
    def start(self, instance: Mapping[str, Any], sandbox: Sandbox) -> tuple[ChatMessage, ...]:
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
