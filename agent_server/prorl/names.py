"""The public names of data sources, and the environments here that take their rows."""

from collections.abc import Collection, Mapping
from typing import Any

from rollyard.errors import InvalidMessage

DEFAULT = "swebench"
"""The data source of a row that names none."""
PREFIXES = {
    "swebench": "swebench",
    "swe-bench": "swebench",
    "swe-gym": "swebench",
    "swegym": "swebench",
    "r2e": "swebench",
    "deepscaler": "deepscaler",
    "deepcoder": "deepcoder",
    "codecontests": "codecontests",
    "apps": "apps",
    "codeforces": "codeforces",
    "taco": "taco",
}
"""Beginnings of public names, and the environment of each."""


def environment_of(instance: Mapping[str, Any], environments: Collection[str]) -> str:
    """The environment for the row. Raises `InvalidMessage` if there is none."""
    source = instance.get("data_source")
    if source is None:
        source = DEFAULT
    if isinstance(source, str) and source in environments:
        return source
    public = str(source).lower().replace("_", "-")
    for prefix, name in PREFIXES.items():
        if public.startswith(prefix) and name in environments:
            return name
    raise InvalidMessage(
        f"no environment of this agent server takes the data_source {str(source)[:100]!r}",
        fix=f"it has {', '.join(sorted(environments))}",
    )


def instance_id_of(instance: Mapping[str, Any]) -> str:
    """The row's id, made of what public rows have where there is none."""
    given = instance.get("instance_id")
    if given is not None:
        return str(given)
    extra = instance.get("extra_info")
    told = extra if isinstance(extra, dict) else {}
    parts = (instance.get("data_source", DEFAULT), *map(told.get, ("name", "split", "index")))
    return "_".join(str(part) for part in parts)
