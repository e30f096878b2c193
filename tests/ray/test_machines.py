"""Which machines of a cluster of Ray a fleet is planned on."""

from pathlib import Path

import pytest

from launch.fleet import FleetSettings
from launch.ray.machines import RayMachine, WantedMachines, chosen, planned
from rollyard.errors import LaunchError

SETTINGS = FleetSettings(
    model=Path("/models/m"),
    directory=Path("/fleet"),
    queues=Path("/fleet/redis"),
    tensor_parallel=2,
)


def machine(address: str, gpus: int = 0, *, is_here: bool = False) -> RayMachine:
    return RayMachine(ray_id=f"ray-{address}", address=address, gpus=gpus, is_here=is_here)


MACHINES = [
    machine("10.0.0.1", is_here=True),
    machine("10.0.0.2", 8),
    machine("10.0.0.3", 4),
    machine("10.0.0.4"),
]


def found(wanted: WantedMachines) -> dict[str, int]:
    return {each.address: each.gpus for each in chosen(MACHINES, wanted)}


def test_all_machines_are_used_unless_fewer_are_asked_for() -> None:
    assert found(WantedMachines()) == {"10.0.0.1": 0, "10.0.0.2": 8, "10.0.0.3": 4, "10.0.0.4": 0}
    assert found(WantedMachines(gpu_nodes=1, cpu_nodes=0)) == {"10.0.0.2": 8}
    assert found(WantedMachines(cpu_nodes=1, gpus_per_node=4)) == {
        "10.0.0.1": 0,
        "10.0.0.2": 4,
        "10.0.0.3": 4,
    }


def test_a_machine_with_fewer_gpus_than_are_asked_for_is_left_alone() -> None:
    assert found(WantedMachines(gpus_per_node=8, cpu_nodes=0)) == {"10.0.0.2": 8}


def test_the_head_is_where_the_driver_runs_or_else_a_machine_with_gpus() -> None:
    plan = planned(chosen(MACHINES, WantedMachines()), SETTINGS)
    assert plan.head == "10.0.0.1"
    plan = planned(chosen(MACHINES[1:], WantedMachines()), SETTINGS)
    assert plan.head == "10.0.0.2"
    assert len(plan.placement.llm_servers) == 6
    assert plan.addresses == {each: each for each in ("10.0.0.2", "10.0.0.3", "10.0.0.4")}


@pytest.mark.parametrize(
    ("machines", "wanted", "sentence"),
    [
        (
            MACHINES,
            WantedMachines(gpu_nodes=3),
            "Ray has 2 machines with 1 GPUs or more, and 3 are wanted",
        ),
        (
            MACHINES,
            WantedMachines(cpu_nodes=3),
            "Ray has 2 machines with no GPUs, and 3 are wanted",
        ),
        (
            [*MACHINES, machine("10.0.0.2", 8)],
            WantedMachines(),
            "Ray has several nodes at 10.0.0.2",
        ),
        ([], WantedMachines(), "Ray has no machine for this fleet"),
    ],
)
def test_what_ray_does_not_have_is_said(
    machines: list[RayMachine], wanted: WantedMachines, sentence: str
) -> None:
    with pytest.raises(LaunchError, match=sentence):
        chosen(machines, wanted)
