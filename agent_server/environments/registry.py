"""Which environments this server can run: our own, and those that installed packages name.

A package adds one through the entry point group `rollyard.environments`; the entry point's name is
the `data_source` of its dataset rows.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.protocol import Environment
from rollyard.errors import Conflict, LaunchError

GROUP = "rollyard.environments"

MakeEnvironment = Callable[[], Environment]

OURS: Mapping[str, MakeEnvironment] = {"arithmetic": Arithmetic}


def find_environments() -> dict[str, MakeEnvironment]:
    """Every environment by name. Raises `LaunchError` when one cannot be loaded."""
    found = dict(OURS)
    for point in entry_points(group=GROUP):
        try:
            make: MakeEnvironment = point.load()
        except Exception as error:  # whatever importing a stranger's package raises
            raise LaunchError(
                f"cannot load the environment {point.name!r} from {point.value}: {error}",
                fix=f"fix or uninstall the package that declares it in {GROUP}",
            ) from error
        if found.setdefault(point.name, make) is not make:
            raise Conflict(
                f"two packages define the environment {point.name!r}; one is {point.value}",
                fix="rename one: the name is the data_source of its dataset rows",
            )
    return found
