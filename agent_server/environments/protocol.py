"""Environments ask a question, react to each response, and grade the episode.

The class of an environment says in `needs` what it needs of a server. One object serves one
trajectory. Whatever the policy writes leads to an observation or a reward; an exception means that
the environment or this machine failed, and never becomes a reward.

The server sees an environment as an `Episode`, of which there are two kinds: `InThread` for our own
environments, and `hosted.episode.HostedEpisode` for those of other packages, and for those of ours
that need packages which the server has not.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import ChatMessage, Grade, Prompt, ToolCall, ToolSchema


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of an environment, all of which an agent server must meet before it starts. An
    environment without any has a conversation and no more."""

    sandbox: SandboxNeeds | None = None
    """Needs of the commands that it runs; None if it runs none, so that no sandbox is opened."""
    image_fields: tuple[str, ...] = ()
    """Fields of a row of which the first that is given names the image of its sandbox, in the place
    of `sandbox.image`. A row whose image is not on the server fails."""
    rewards: bool = False
    """True if it has answers graded by `Rewards`, with which its class is then called."""
    packages: str = ""
    """Name of the tool environment with the packages that it imports, whose Python then runs it, in
    a process for each attempt; empty if it imports none but the server's."""
    repositories: bool = False
    """True if it works on the operator's `Repositories`, with which its class is then called, after
    the rewards. A server with images will do where rows may name theirs. Environments of other
    packages get none."""
    eval_seconds: float | None = None
    """Seconds that grading may take; None for the server's usual time."""
    computes_grade: bool = False
    """True if grading keeps a CPU busy for long: no more attempts at once are graded by these
    environments, and by `Rewards` here, than the server has CPUs."""
    agent: str = "tool_loop"
    """Agent that works on it, by the name of its entry point."""
    tags: tuple[str, ...] = ()
    """Names of what the machine must have, such as a GPU. An operator gives them to a server with
    `--tag`; one that lacks a tag does not start. What single Jobs need is in `Prompt.tags`."""

    def sandbox_for(self, instance: Mapping[str, Any]) -> SandboxNeeds | None:
        """Needs of the commands that it runs for this row. Raises `InvalidMessage`."""
        given = ((field, instance.get(field)) for field in self.image_fields)
        field, image = next((each for each in given if each[1]), ("", None))
        if self.sandbox is None or image is None:
            return self.sandbox
        if not isinstance(image, str):
            raise InvalidMessage(
                f"the row's {field} is no name of an image: {image!r:.200}",
                fix=f"name a directory below the server's --images in {field}, or leave it out",
            )
        return msgspec.structs.replace(self.sandbox, image=image)


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of an episode."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    """Tools of which the policy is told. Without any, its text is not searched for calls."""
    command: str = ""
    """Command line of the program that is the agent, for the agent `command`, which runs it in the
    sandbox. Such a program begins the conversation itself: there are no messages, and `step` is
    never called."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One response that the policy ended itself."""

    text: str
    """All that it wrote, without the token that ended it."""
    content: str = ""
    """The text without reasoning and calls."""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """A sentence for the policy about each call that could not be read."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The environment's reaction to a response."""

    messages: tuple[ChatMessage, ...] = ()
    done: bool = False
    """True if the episode is over; `messages` are then not shown to the policy."""


class Environment(Protocol):
    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening | tuple[ChatMessage, ...]:
        """The conversation the policy begins with. Raises `InvalidMessage` for a bad row."""
        ...

    def step(self, response: Response) -> Observation:
        """React to one response that the policy ended itself."""
        ...

    def grade(self) -> Grade | float:
        """The grade of the episode so far, also if a limit ended it."""
        ...


class Solvable(Environment, Protocol):
    """An environment whose rows come with their solution, so that `rollyard env validate` can prove
    them."""

    def solve(self) -> None:
        """Do what a perfect policy would have done by the end of the episode."""
        ...


class Closable(Environment, Protocol):
    """An environment of ours that holds something for its episode, such as a connection."""

    def close(self) -> None:
        """Give it back, from any thread, and end a call that waits for it; a second call changes
        nothing."""
        ...


class Patching(Environment, Protocol):
    """An environment of ours whose policy changes a repository."""

    patch: str | None
    """What it changed, as `git diff` writes it; None before that was looked for."""


MakeEnvironment = Callable[..., Environment]
"""An environment's class, called with the `Rewards` and `Repositories` that it needs."""


class EnvironmentFailed(RollyardError):
    """A failure of the environment's code on this row, as on any server."""


class EnvironmentKilled(EnvironmentFailed):
    """The end of an environment whose time was over, or which nobody needs any more."""


class Episode(Protocol):
    """An environment at work on one trajectory. `start`, `step`, `solve` and `grade` raise nothing
    but `EnvironmentFailed`, and `Unavailable` when this server is to blame."""

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening: ...

    def step(self, response: Response) -> Observation: ...

    def solve(self) -> None: ...

    def grade(self) -> Grade: ...

    @property
    def patch(self) -> str | None:
        """What the policy changed in a repository, if the environment is a `Patching`."""
        ...

    def kill(self) -> None:
        """End what runs, from any thread, without waiting: the call under way raises
        `EnvironmentKilled`. An environment that runs in a thread of this process goes on, unless it
        can be closed."""
        ...

    def close(self) -> None:
        """Give everything back; a second call changes nothing."""
        ...


MakeEpisode = Callable[[], Episode]


class EnvironmentKind(msgspec.Struct, frozen=True):
    """One environment that this server can run."""

    make: MakeEpisode
    needs: Needs = Needs()


def declared_needs(make: Callable[..., object]) -> Needs:
    """The needs that an environment's class declares. Raises `TypeError` for anything else."""
    needs = getattr(make, "needs", Needs())
    if not isinstance(needs, Needs):
        raise TypeError(f"its `needs` must be a Needs of {__name__}, got {needs!r}")
    return needs
