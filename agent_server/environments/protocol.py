"""What an environment is: it asks, it reacts to each response, and it grades.

One object serves one trajectory. Whatever the policy writes is an observation or a reward; an
exception means that the environment or this machine failed, and never becomes a reward.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from agent_server.sandbox.protocol import Sandbox
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
