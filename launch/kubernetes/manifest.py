"""Objects of Kubernetes as YAML for people to read."""

from collections.abc import Iterable
from typing import Any

import yaml

from launch.kubernetes.pods import Yaml


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types here
    """Without anchors, and with texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def manifest(objects: Iterable[Yaml]) -> str:
    """The objects, one document each."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=100
    )
    return text
