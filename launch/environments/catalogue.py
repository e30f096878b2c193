"""The environments that are installed, each with a sentence about it and what it lacks here."""

import re
import sys
from collections.abc import Iterator

import msgspec

from agent_server.abilities import ServerAbilities
from agent_server.environments.protocol import declared_needs
from agent_server.registry import foreign_environments, load_agents, our_entry_points

_SENTENCE = re.compile(r".+?[.!?](?=\s|$)", re.DOTALL)


class Installed(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """One environment."""

    name: str
    source: str
    """`rollyard`, or `module:Class` of another package."""
    about: str
    """The first sentence of its module, or the summary of another package."""
    lacking: tuple[str, ...] = ()
    """What an agent server that is given no options lacks for it. Of other packages' environments
    nothing is known before one starts, as they are not imported here."""


def catalogue() -> list[Installed]:
    """Every environment, in the order of their names. Raises `Conflict` and `LaunchError`."""
    return sorted((*_ours(), *_theirs()), key=lambda each: each.name)


def _ours() -> Iterator[Installed]:
    server = ServerAbilities(agents=load_agents().keys())
    for point, made in our_entry_points():
        said = _SENTENCE.match(sys.modules[point.module].__doc__ or "")
        yield Installed(
            name=point.name,
            source="rollyard",
            about=" ".join(said.group().split()) if said else "",
            lacking=tuple(server.missing(declared_needs(made))),
        )


def _theirs() -> Iterator[Installed]:
    for point in foreign_environments():
        summary = point.dist.metadata["Summary"] if point.dist else None
        yield Installed(name=point.name, source=point.value, about=summary or "")
