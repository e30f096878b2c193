"""`rollyard plan`: show which servers of a fleet would run where, without starting anything."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from launch.output import Json, Listing, show
from orchestrator.placement import FleetNode, Placement, place
from rollyard import codec
from rollyard.errors import LaunchError, RollyardError

MAX_NODES = 10_000
_NODES = re.compile(r"(?P<name>[^:]+)(:(?P<gpus>[0-9]{1,4}))?(:(?P<model>(?!-?[0-9]+$)[^:]+))?")
_LIST = re.compile(r"(?P<before>[^][]*)\[(?P<numbers>[^][]*)\](?P<after>.*)")
_NUMBERS = re.compile(r"(?P<first>[0-9]{1,9})(-(?P<last>[0-9]{1,9}))?")

Nodes = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE[:GPUS][:MODEL]...",
        help="The nodes of the fleet, such as gpu[1-4,7]:8 cpu[01-15].",
    ),
]
TensorParallel = Annotated[
    int, typer.Option("--tensor-parallel", min=1, help="Number of GPUs of each LLM server.")
]
Before = Annotated[
    Path | None,
    typer.Option(
        help="What `rollyard plan --json` printed for the fleet as it was: agent servers go on "
        "with the LLM servers that they had, as far as the load stays even."
    ),
]


def plan_command(
    nodes: Nodes, tensor_parallel: TensorParallel = 1, before: Before = None, json: Json = False
) -> None:
    """Show which servers of a fleet run on which of its nodes, and which LLM servers each agent
    server asks."""
    fleet = [node for text in nodes for node in parse_nodes(text)]
    earlier = None if before is None else _read(before)
    placement = place(fleet, tensor_parallel=tensor_parallel, before=earlier)
    show(placement, [_listing(fleet, placement)], json=json)


def parse_nodes(text: str) -> list[FleetNode]:
    """The nodes that `NAME[:GPUS][:MODEL]` names; several for a name such as `gpu[1-4,7]`, as Slurm
    writes them. Raises `LaunchError`."""
    found = _NODES.fullmatch(text)
    if found is None:
        raise LaunchError(
            f"{text!r} names no nodes",
            fix="write NAME, NAME:GPUS or NAME:GPUS:MODEL, with up to 9999 GPUs",
        )
    gpus, model = int(found["gpus"] or 0), found["model"]
    named = {} if model is None else {"model": model}
    return [FleetNode(name=name, gpus=gpus, **named) for name in _names(found["name"])]


def _names(text: str) -> list[str]:
    """The names that a list in brackets stands for."""
    found = _LIST.fullmatch(text)
    if found is None:
        if "[" in text or "]" in text:
            raise LaunchError(f"{text!r} names no nodes", fix="write a list as in gpu[1-4,7]")
        return [text]
    before, after = found["before"], found["after"]
    numbers = [number for part in found["numbers"].split(",") for number in _numbers(part)]
    return [name for number in numbers for name in _names(f"{before}{number}{after}")]


def _numbers(text: str) -> list[str]:
    """The numbers of a range; leading zeros belong to them."""
    found = _NUMBERS.fullmatch(text)
    if found is None:
        raise LaunchError(f"{text!r} is no range of nodes", fix="write it as in gpu[1-4,7]")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not 0 <= last - first < MAX_NODES:
        raise LaunchError(f"{text!r} is no range of 1 to {MAX_NODES} nodes")
    return [f"{number:0{len(found['first'])}}" for number in range(first, last + 1)]


def _read(path: Path) -> Placement:
    try:
        return codec.decode_json(path.read_bytes(), Placement)
    except (OSError, RollyardError) as error:
        raise LaunchError(
            f"cannot read a placement from {path}: {error}",
            fix="give it what `rollyard plan --json` has printed",
        ) from error


def _listing(nodes: Sequence[FleetNode], placement: Placement) -> Listing:
    shown = Listing("node", "model", "GPUs", "LLM servers on", "agents ask")
    for node, agents in zip(nodes, placement.agent_servers, strict=True):
        own = [server for server in placement.llm_servers if server.node == node.name]
        used = sum(len(server.gpus) for server in own)
        idle = f", {node.gpus - used} idle" if used < node.gpus else ""
        on = " ".join(",".join(map(str, server.gpus)) or "CPUs" for server in own)
        shown.add(
            node.name,
            node.model,
            f"{node.gpus}{idle}",
            on or "-",
            "its own" if own else " ".join(agents.llm_servers),
        )
    return shown
