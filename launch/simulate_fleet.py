"""`rollyard simulate --fleet`: estimate the time of a step on nodes with CPUs and LLM servers."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import track

from launch.output import Listing
from launch.plan_command import parse_nodes
from launch.simulate import lasting
from rollyard.errors import LaunchError
from simulator.dataset import SimulatedDataset, Try
from simulator.fleet.figures import FleetFigures, simulate_fleet
from simulator.fleet.settings import AgentWork, SimulatedFleet, SimulatedNode
from simulator.fleet.split import pull_over_static
from simulator.plan import Plan
from simulator.policies import SamplingPolicy
from simulator.trace import Recorded

SLOTS = 64
"""Slots of a node that names none."""
_NODES = re.compile(
    r"(?P<nodes>.+):(?P<gpus>[0-9]{1,4})/(?P<cpus>[0-9]{1,5})(/(?P<slots>[0-9]{1,5}))?"
    r"(/(?P<speed>[0-9.]{1,8}))?"
)


class FleetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet as it was asked for, and what came of it."""

    nodes: str
    figures: FleetFigures
    pull_over_static: float | None = None
    """Time of Jobs dealt out evenly before, as a multiple of that of Jobs pulled by free Slots."""


class FleetQuestion(NamedTuple):
    """What a user says of the fleets to simulate."""

    fleets: Sequence[str]
    recorded: Sequence[Recorded]
    """Trajectories of the trace; none for the synthetic dataset."""
    turn_cpu_seconds: float | None
    tensor_parallel: int
    dealt_jobs: int
    """Number of Jobs to run both pulled and dealt out; 0 to run none."""


def fleet_answer(
    asked: FleetQuestion, datasets: Sequence[SimulatedDataset], policy: SamplingPolicy, plan: Plan
) -> tuple[dict[str, object], Listing]:
    """Each fleet on all datasets, as a message and for people. Raises `LaunchError`."""
    work = _work(asked.recorded, asked.turn_cpu_seconds)
    fleets = {
        text: SimulatedFleet(
            nodes=parse_fleet(text), tensor_parallel=asked.tensor_parallel, work=work
        )
        for text in asked.fleets
    }
    for fleet in fleets.values():
        fleet.placement()  # a mistake is told before the first is simulated
    found = [
        FleetAnswer(
            nodes=text,
            figures=_mean([simulate_fleet(each, policy, plan, fleet) for each in datasets]),
            pull_over_static=_dealt(datasets, policy, fleet, asked.dealt_jobs),
        )
        for text, fleet in track(fleets.items(), "simulating", console=Console(stderr=True))
    ]
    return {"seeds": len(datasets), "fleets": found}, _listing(found)


def parse_fleet(text: str) -> tuple[SimulatedNode, ...]:
    """The nodes that a list of `NAME:GPUS/CPUS[/SLOTS[/SPEED]]` names. Raises `LaunchError`."""
    nodes = tuple(node for part in text.split() for node in _parse_nodes(part))
    if not nodes:
        raise LaunchError("a fleet needs at least one node", fix="name some, as in gpu[1-4]:8/128")
    return nodes


def _parse_nodes(text: str) -> list[SimulatedNode]:
    found = _NODES.fullmatch(text)
    speed = _number(found["speed"] or "1") if found is not None else None
    if found is None or speed is None:
        raise LaunchError(
            f"{text!r} names no nodes of a simulation",
            fix="write NAME:GPUS/CPUS, NAME:GPUS/CPUS/SLOTS or NAME:GPUS/CPUS/SLOTS/SPEED",
        )
    return [
        SimulatedNode(
            name=node.name,
            gpus=int(found["gpus"]),
            cpus=int(found["cpus"]),
            slots=int(found["slots"] or SLOTS),
            speed=speed,
        )
        for node in parse_nodes(found["nodes"])
    ]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _work(trace: Sequence[Recorded], cpu_seconds: float | None) -> AgentWork:
    """The work of agents: of those in a trace, the longest has the most Turns."""
    usual = AgentWork()
    if cpu_seconds is not None:
        usual = msgspec.structs.replace(usual, cpu_seconds=cpu_seconds)
    if not trace:
        return usual
    return msgspec.structs.replace(
        usual,
        longest_seconds=max(each.seconds for each in trace),
        max_turns=max(each.turns for each in trace) or usual.max_turns,
    )


def _mean(found: Sequence[FleetFigures]) -> FleetFigures:
    """Means over the datasets."""
    names = [field.name for field in msgspec.structs.fields(FleetFigures) if field.type is float]
    means = {name: math.fsum(getattr(each, name) for each in found) / len(found) for name in names}
    return msgspec.structs.replace(found[0], **means)


def _dealt(
    datasets: Sequence[SimulatedDataset], policy: SamplingPolicy, fleet: SimulatedFleet, jobs: int
) -> float | None:
    if not jobs:
        return None
    members = range(policy.settings.group_size)
    ratios = [
        pull_over_static(
            fleet,
            [
                [dataset.draw(Try(*dataset.prompt(prompt), member, 0), 0) for member in members]
                for prompt in range(-(-jobs // len(members)))
            ],
        )
        for dataset in datasets
    ]
    return math.fsum(ratios) / len(ratios)


def _listing(found: Sequence[FleetAnswer]) -> Listing:
    fates = ("useful", "filtered", "cancelled", "idle")
    dealt = ("dealt out",) if any(each.pull_over_static for each in found) else ()
    columns = ("LLM servers", "CPUs", "slots", "a step", " / ".join(fates) + " %")
    shown = Listing("fleet", *columns, "CPUs busy", "LLM servers busy", "at once", *dealt)
    for each in found:
        figures = each.figures
        shown.add(
            each.nodes,
            str(figures.llm_servers),
            str(figures.cpus),
            str(figures.slots),
            lasting(figures.seconds_per_step),
            " / ".join(f"{100 * getattr(figures, fate):.0f}" for fate in fates),
            f"{figures.cpus_busy:.0%}",
            f"{figures.llm_servers_busy:.0%}",
            f"{figures.trajectories_at_once:.1f}",
            *(f"x {each.pull_over_static:.2f}" for _ in dealt),
        )
    return shown
