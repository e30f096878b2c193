"""Metrics of the proxy, and those of its LLM servers, each with the name of its server."""

import re
from collections.abc import Iterable, Mapping

from llm_servers.proxy.choice import LoadOfLLM
from llm_servers.proxy.judgement import SeenOfLLM

_SAMPLE = re.compile(r"(\w[\w:]*)(?:\{(.*)\})?( .*)")


def merged(texts: Mapping[str, str]) -> str:
    """The metrics of several servers, given by their names, as those of one exporter."""
    families: dict[str, list[str]] = {}
    for server, text in texts.items():
        family = families.setdefault("", [])
        for line in text.splitlines():
            if line.startswith("#"):
                name = line.split(" ", 3)[2:3]
                family = families.setdefault("".join(name), [])
                if line not in family:
                    family.append(line)
            elif sample := _SAMPLE.fullmatch(line):
                family.append(_labelled(sample, server))
    return "".join(f"{line}\n" for family in families.values() for line in family)


def own(
    servers: Mapping[str, SeenOfLLM], loads: Mapping[str, LoadOfLLM], running: Mapping[str, int]
) -> str:
    """What the proxy knows of its servers."""
    kinds: dict[str, Iterable[tuple[str, str]]] = {
        "standing": ((server, f'standing="{seen.standing}"') for server, seen in servers.items()),
    }
    lines = ["# TYPE rollyard_llm_server_standing gauge"]
    for server, label in kinds["standing"]:
        lines.append(f'rollyard_llm_server_standing{{llm_server="{server}",{label}}} 1')
    figures = {
        "requests": running,
        "waiting_tokens": {server: load.waiting_tokens for server, load in loads.items()},
        "trajectories": {server: load.trajectories for server, load in loads.items()},
    }
    for name, values in figures.items():
        lines.append(f"# TYPE rollyard_llm_server_{name} gauge")
        lines += (
            f'rollyard_llm_server_{name}{{llm_server="{server}"}} {value}'
            for server, value in values.items()
        )
    return "\n".join(lines) + "\n"


def _labelled(sample: re.Match[str], server: str) -> str:
    name, labels, value = sample.groups()
    more = f",{labels}" if labels else ""
    return f'{name}{{llm_server="{server}"{more}}}{value}'
