"""The machines of a cluster of Ray, and the fleet that is planned on them.

- A node of the fleet is a machine, named by its address, so that one that Ray lost and has again is
  the same node. The first is the head: the one on which the driver runs, if it is among them.
"""

from collections.abc import Sequence

import msgspec

from launch.fleet import FleetPlan, FleetSettings
from orchestrator.placement import FleetNode, place
from rollyard.errors import LaunchError


class RayMachine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, as Ray knows it."""

    ray_id: str
    address: str
    gpus: int = 0
    is_here: bool = False
    """Whether the driver runs there."""


class WantedMachines(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines are wanted; None for all that there are."""

    gpu_nodes: int | None = None
    gpus_per_node: int | None = None
    cpu_nodes: int | None = None


def chosen(machines: Sequence[RayMachine], wanted: WantedMachines) -> list[RayMachine]:
    """The machines of the fleet, the head first, each with the GPUs that are used there. Raises
    `LaunchError` if there are too few."""
    addresses = [each.address for each in machines]
    if twice := sorted({each for each in addresses if addresses.count(each) > 1}):
        raise LaunchError(
            f"Ray has several nodes at {' '.join(twice)}, which would use the same ports",
            fix="start one node of Ray on each machine",
        )
    least = 1 if wanted.gpus_per_node is None else wanted.gpus_per_node
    with_gpus = [each for each in machines if each.gpus >= max(1, least)]
    others = [each for each in machines if each.gpus == 0]
    found = [
        *_some(with_gpus, wanted.gpu_nodes, f"{max(1, least)} GPUs or more"),
        *_some(others, wanted.cpu_nodes, "no GPUs"),
    ]
    if not found:
        raise LaunchError("Ray has no machine for this fleet", fix="`ray status` shows all")
    lent = [
        msgspec.structs.replace(each, gpus=wanted.gpus_per_node)
        if wanted.gpus_per_node is not None and each.gpus
        else each
        for each in found
    ]
    return sorted(lent, key=lambda each: (not each.is_here, not each.gpus))


def _some(machines: Sequence[RayMachine], count: int | None, what: str) -> Sequence[RayMachine]:
    if count is not None and len(machines) < count:
        raise LaunchError(
            f"Ray has {len(machines)} machines with {what}, and {count} are wanted",
            fix="`ray status` shows all; ask for fewer, or have more join",
        )
    here_first = sorted(machines, key=lambda each: not each.is_here)
    return here_first if count is None else here_first[:count]


def planned(machines: Sequence[RayMachine], settings: FleetSettings) -> FleetPlan:
    """The plan of a fleet on these machines. Raises `LaunchError`."""
    nodes = [FleetNode(name=each.address, gpus=each.gpus) for each in machines]
    return FleetPlan(
        settings=settings,
        placement=place(nodes, tensor_parallel=settings.tensor_parallel),
        addresses={each.address: each.address for each in machines},
    )
