"""Agents take Turns with the policy until their task is over or a limit ends it.

Whatever the policy does, hitting a limit included, ends in a Trajectory. A failure of anything else
is raised.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.environments.protocol import Episode, Opening
from agent_server.sandbox.protocol import OpenSandbox
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import Job, Trajectory


class Policy(Protocol):
    """The source of responses."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation: ...


class PolicySession(Protocol):
    """The policy at the disposal of a program that asks it over HTTP, until the session is over."""

    @property
    def url(self) -> str:
        """Base URL of the routes `/v1/...`, on this machine."""
        ...

    @property
    def key(self) -> str:
        """Key of the session's requests, which opens nothing else."""
        ...

    def trajectory(self, *, truncated: bool) -> Trajectory:
        """All that the policy was asked and said. Raises what made a Turn fail, and
        `EnvironmentFailed` where it was asked nothing."""
        ...


class AgentGateway(Protocol):
    def open(self, task: "Task", stop: StopSignal) -> AbstractContextManager[PolicySession]: ...


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one agent, and the means to work on it."""

    name: str
    """A name that no other attempt has; its requests are known by it."""
    job: Job
    """The Job, with its sampling parameters and with limits that fit the model's context."""
    opening: Opening
    """The beginning of the conversation, and the tools that the policy is told of."""
    prompt: Sequence[int]
    """The opening as token ids, which leave room for a response."""
    environment: Episode
    """The environment, which has been started."""
    policy: Policy
    template: ChatTemplate
    sandbox: OpenSandbox | None = None
    """The attempt's sandbox, which the environment has prepared; None if it needs none."""
    gateway: AgentGateway | None = None
    """The server's gateway, for agents that are programs of their own."""


class Agent(Protocol):
    def run(self, stop: StopSignal) -> Trajectory:
        """Work on the task to its end. The Trajectory's tokens are exactly those of the requests
        and responses, and `truncated` says whether a limit ended it, as an out-of-time `stop` does.

        Raises `Stopped` when cancelled, and `DeadlineExceeded` if time was up before any response.
        """
        ...


MakeAgent = Callable[[Task], Agent]
