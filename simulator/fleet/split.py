"""Jobs on a fleet without a trainer: free Slots pull them, or they are dealt out before the step.

Both run the same trajectories on the same machines; what differs is who decides where each runs.
"""

from collections.abc import Sequence

from orchestrator.ids import job_id
from rollyard.messages import RunSettings
from simulator.clock import Clock
from simulator.dataset import Draw
from simulator.fleet.machines import Machines
from simulator.fleet.settings import SimulatedFleet
from simulator.policies import RUN
from simulator.queues import SimulatedQueues
from simulator.tasks import SimulatedTasks
from simulator.work import Occupation, Timer


def pull_over_static(fleet: SimulatedFleet, groups: Sequence[Sequence[Draw]]) -> float:
    """How many times as long all Jobs take if each server is dealt an equal number before, as if
    free Slots pull the next one."""
    number = {node.name: i for i, node in enumerate(fleet.nodes)}
    nodes = [number[node.name] for node in fleet.node_of_slots()]
    dealt = {job: i % len(fleet.nodes) for i, job in enumerate(_jobs(groups))}
    static = SimulatedTasks(nodes, dealt.__getitem__)
    pull = SimulatedTasks([0] * fleet.slots, lambda job: 0)
    return _seconds(fleet, static, groups) / _seconds(fleet, pull, groups)


def _seconds(
    fleet: SimulatedFleet, tasks: SimulatedTasks, groups: Sequence[Sequence[Draw]]
) -> float:
    """Time until all Jobs are done."""
    draws = dict(zip(_jobs(groups), (draw for group in groups for draw in group), strict=True))

    def begin(job: str, tries: int, attempts: int) -> tuple[Draw, float, bool]:
        return draws[job], draws[job].seconds, False

    clock: Timer = Clock()
    queues = SimulatedQueues(
        clock, tasks, RunSettings(run_id=RUN, group_size=2), Machines(fleet, clock), begin
    )
    queues.held = False
    queues.add(draws)
    queues.dispatch(0)
    while (happening := clock.next()) is not None:
        if not isinstance(happening, Occupation):
            happening()
        elif queues.is_due(happening):
            queues.end(happening)
            queues.dispatch(0)
    return clock.now


def _jobs(groups: Sequence[Sequence[Draw]]) -> list[str]:
    return [
        job_id(RUN, f"g{number}", member)
        for number, group in enumerate(groups)
        for member in range(len(group))
    ]
