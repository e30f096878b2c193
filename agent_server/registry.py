"""The environments, agents and graders that this server has: those that installed packages name.

A package adds one through an entry point of the group `rollyard.environments`, `rollyard.agents` or
`rollyard.graders`; ours are named in pyproject.toml like all others. The name of an environment or
a grader is the `data_source` of its dataset rows, an agent's is what environments say in
`Needs.agent`. The group `rollyard.tool_call_formats` adds to `agents.tool_calls.formats`.

Our environments run in the attempt's thread, but for those that import packages which this server
has not. Code of others may hang or end its process, so that it
gets processes of its own (see `environments.hosted`) and is never imported here. Agents talk with
the LLM servers for us: those of other packages are trusted like our own, and run here.
"""

from collections.abc import Collection, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from agent_server.agents.protocol import MakeAgent
from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.protocol import ToolCallFormat
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import (
    EnvironmentKind,
    MakeEnvironment,
    Needs,
    declared_needs,
)
from agent_server.repositories import NO_REPOSITORIES, Repositories
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.rewards.protocol import Rewards
from rollyard.errors import Conflict, LaunchError

ENVIRONMENTS = "rollyard.environments"
AGENTS = "rollyard.agents"
GRADERS = "rollyard.graders"
TOOL_CALL_FORMATS = "rollyard.tool_call_formats"

_OUR_PACKAGE = "agent_server"


def our_environments(
    rewards: Rewards = NO_REWARDS, repositories: Repositories = NO_REPOSITORIES
) -> dict[str, EnvironmentKind]:
    """Our own environments that need no packages but this server's, by name. Raises
    `LaunchError`."""
    return {
        point.name: in_thread(made, rewards, repositories)
        for point, made in our_entry_points()
        if not declared_needs(made).packages
    }


def environments_apart() -> dict[EntryPoint, Needs]:
    """The entry points of our own environments that need packages of a tool environment, and what
    else they need. Raises `LaunchError`."""
    found = ((point, declared_needs(made)) for point, made in our_entry_points())
    return {point: needs for point, needs in found if needs.packages}


def foreign_environments() -> tuple[EntryPoint, ...]:
    """The entry points of environments of other packages. Raises `Conflict`."""
    return tuple(point for point in _named(ENVIRONMENTS) if not _is_ours(point))


def load_agents() -> dict[str, MakeAgent]:
    """All agents, by name. Raises `Conflict` and `LaunchError`."""
    return {point.name: _load(point) for point in _named(AGENTS)}


def graders() -> tuple[EntryPoint, ...]:
    """The entry points of all graders; none is imported. Raises `Conflict`."""
    return tuple(_named(GRADERS))


def load_tool_call_formats() -> dict[str, ToolCallFormat]:
    """All tool-call formats, by name. Those of other packages come first, so that they match a chat
    template before ours do. Raises `Conflict` and `LaunchError`."""
    theirs: dict[str, ToolCallFormat] = {}
    for point in _named(TOOL_CALL_FORMATS):
        if point.name in OUR_FORMATS:
            raise Conflict(
                f"{point.value} is named {point.name!r}, as a tool-call format of Rollyard is",
                fix="give its entry point another name, for --tool-calls",
            )
        theirs[point.name] = _load(point)()
    return {**theirs, **OUR_FORMATS}


def _named(group: str) -> Collection[EntryPoint]:
    """The entry points of the group. Raises `Conflict` when two have the same name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if found.setdefault(point.name, point).value != point.value:
            raise Conflict(
                f"two packages name something {point.name!r} in {group}: "
                f"{found[point.name].value} and {point.value}",
                fix="give one of the entry points another name, or uninstall its package",
            )
    return found.values()


def our_entry_points() -> Iterator[tuple[EntryPoint, MakeEnvironment]]:
    """The entry points of all our environments, with their classes. Raises `LaunchError`."""
    for point in _named(ENVIRONMENTS):
        if _is_ours(point):
            yield point, _load(point)


def _is_ours(point: EntryPoint) -> bool:
    return point.module.partition(".")[0] == _OUR_PACKAGE


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever importing a stranger's package raises
        raise LaunchError(
            f"cannot load {point.name!r} from {point.value}: {type(error).__name__}: {error}",
            fix="correct its code or its MODULE:NAME, and install what it imports beside this "
            f"server; its package declares it in {point.group}",
        ) from error
