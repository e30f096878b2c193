"""The files with which a node begins that shares no directory with the others of its fleet.

- They are the plan and the secrets. Where a launcher puts them others may be able to read them; in
  the node's own directory only its user can.
- A model without a leading slash is one that comes with Rollyard, wherever that is installed there.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from launch.documents import from_text
from launch.fleet import FLEET, REDIS_PASSWORD, TOKENS, FleetPlan, write_fleet
from rollyard.errors import LaunchError
from rollyard.tokens import replace_secret

PACKAGES = Path(__file__).parents[1]
"""Where Rollyard is installed."""
SECRETS = (TOKENS, REDIS_PASSWORD)


def files_in(directory: Path) -> dict[str, str]:
    """The files that a launcher has put there. Raises `LaunchError` if one cannot be read."""
    names = [name for name in (FLEET, *SECRETS) if name == FLEET or (directory / name).exists()]
    try:
        return {name: (directory / name).read_text() for name in names}
    except OSError as error:
        raise LaunchError(
            f"cannot take over the fleet's files from {directory}: {error}",
            fix="name the directory with the plan, the tokens and the password with --from",
        ) from error


def take_over(files: Mapping[str, str], directory: Path) -> None:
    """Write the files for a node whose own directory this is."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in SECRETS:
        if name in files:
            replace_secret(directory / name, files[name])
    fleet = from_text(files[FLEET], FleetPlan)
    settings = msgspec.structs.replace(
        fleet.settings, directory=directory, model=PACKAGES / fleet.settings.model
    )
    write_fleet(msgspec.structs.replace(fleet, settings=settings))
