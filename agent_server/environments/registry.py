"""Which environments this server can run: our own, and those that installed packages name.

A package adds one through the entry point group `rollyard.environments`; the entry point's name is
the `data_source` of its dataset rows. Ours run in the attempt's thread; code of others may hang or
end its process, so that it gets processes of its own (see `hosted`) and is never imported here.
"""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points

from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import MakeEnvironment, MakeEpisode
from rollyard.errors import Conflict

GROUP = "rollyard.environments"

_OURS: Mapping[str, MakeEnvironment] = {"arithmetic": Arithmetic}
_OUR_PACKAGE = "agent_server"


def our_environments() -> dict[str, MakeEpisode]:
    """Our own, by name."""
    return {name: partial(InThread, make) for name, make in _OURS.items()}


def foreign_environments() -> tuple[EntryPoint, ...]:
    """Those of other packages. Raises `Conflict` when two have the same name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.module.partition(".")[0] == _OUR_PACKAGE:
            continue
        if point.name in _OURS or found.setdefault(point.name, point).value != point.value:
            raise Conflict(
                f"two packages define the environment {point.name!r}; one is {point.value}",
                fix="rename one: the name is the data_source of its dataset rows",
            )
    return tuple(found.values())
