"""A training run on a simulated fleet, and how busy its machines were."""

import math
from collections.abc import Iterable

import msgspec

from simulator.dataset import SimulatedDataset
from simulator.fleet.machines import Machines
from simulator.fleet.settings import SimulatedFleet
from simulator.fleet.sharing import SharedResource
from simulator.plan import Plan
from simulator.policies import SamplingPolicy
from simulator.training import Training
from simulator.work import Timer


class FleetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Time and shares are averages over the steps after the warm-up; how busy the machines were is
    that of the whole run."""

    nodes: int
    cpus: int
    llm_servers: int
    slots: int
    seconds_per_step: float
    useful: float
    filtered: float
    cancelled: float
    idle: float
    """Shares of the Slot time, as are the three above."""
    cpus_busy: float
    """Share of the CPUs that tools used."""
    llm_servers_busy: float
    """Share of the time in which an LLM server sampled for any trajectory."""
    trajectories_at_once: float
    """Number of trajectories for which a busy LLM server sampled at a time."""


def simulate_fleet(
    dataset: SimulatedDataset, policy: SamplingPolicy, plan: Plan, fleet: SimulatedFleet
) -> FleetFigures:
    """Train on the fleet, which has the Slots; those of the plan are not used."""
    made: list[tuple[Timer, Machines]] = []

    def work(clock: Timer) -> Machines:
        machines = Machines(fleet, clock)
        made.append((clock, machines))
        return machines

    of_fleet = msgspec.structs.replace(plan, slots=fleet.slots)
    outcome = Training(dataset, policy, of_fleet, work=work).run()
    ((clock, machines),) = made
    llms = [llm.shared for llm in machines.llms.all.values()]
    cpus = sum(node.cpus for node in fleet.nodes)
    tools = _total(machines.cpus.values(), "use_seconds")
    return FleetFigures(
        nodes=len(fleet.nodes),
        cpus=cpus,
        llm_servers=len(llms),
        slots=fleet.slots,
        seconds_per_step=outcome.step_seconds,
        useful=outcome.share("useful"),
        filtered=outcome.share("filtered"),
        cancelled=outcome.share("cancelled"),
        idle=max(0.0, outcome.share("idle")),
        cpus_busy=tools / (cpus * clock.now),
        llm_servers_busy=_total(llms, "busy_seconds") / (len(llms) * clock.now),
        trajectories_at_once=_total(llms, "use_seconds") / _total(llms, "busy_seconds"),
    )


def _total(resources: Iterable[SharedResource], what: str) -> float:
    return math.fsum(getattr(each, what) for each in resources)
