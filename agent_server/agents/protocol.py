"""What an agent is: it takes Turns with the policy until its task is over or a limit ends it.

What the policy does, hitting a limit included, ends in a Trajectory. What goes wrong around the
policy is raised.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.environments.protocol import Environment
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import ChatMessage, Job, Trajectory


class Policy(Protocol):
    """Where responses come from."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation: ...


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent is given."""

    name: str
    """Unique among attempts: tells its requests from those of all others."""
    job: Job
    """Has the sampling parameters and the limits, which fit the model's context."""
    opening: tuple[ChatMessage, ...]
    """The conversation to begin with."""
    prompt: Sequence[int]
    """The same as token ids, which leave room for a response."""
    environment: Environment
    """Already started."""
    policy: Policy
    template: ChatTemplate


class Agent(Protocol):
    def run(self, stop: StopSignal) -> Trajectory:
        """Work on the task to its end. The Trajectory's tokens are exactly those of the requests
        and responses, and `truncated` says whether a limit ended it, as an out-of-time `stop` does.

        Raises `Stopped` when cancelled, and `DeadlineExceeded` if time was up before any response.
        """
        ...


MakeAgent = Callable[[Task], Agent]
