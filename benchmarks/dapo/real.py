"""The same training run twice: on the virtual clock, and through HTTP and a durable Redis.

Both have the same draws; a minute of the simulation takes `SECONDS_OF_A_MINUTE`. As in the
simulation, a real step lasts from its request until the Batch is there: what a trainer does between
two Batches is not the rollout service's time.
"""

import itertools
import math
import time
from collections.abc import Iterator

import msgspec

from benchmarks.deployment import BenchDeployment
from benchmarks.workloads import ENVIRONMENT, SECONDS_OF_A_MINUTE
from simulator.dataset import World
from simulator.plan import Plan
from simulator.policies import SamplingPolicy, policy
from simulator.training import simulate

SERVERS = 2
PLAN = Plan(slots=128, steps=16, warm_up=4)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Mean seconds of a step; simulated ones are converted to the time of the real run."""

    policy: str
    simulated: float
    real: float

    @property
    def ratio(self) -> float:
        return self.real / self.simulated


def compare(name: str, seed: int, plan: Plan = PLAN) -> Compared:
    chosen = policy(name)
    simulated = simulate(World(seed), chosen, plan).step_seconds / 60 * SECONDS_OF_A_MINUTE
    steps = real_steps(chosen, seed, plan)[plan.warm_up :]
    return Compared(policy=name, simulated=simulated, real=math.fsum(steps) / len(steps))


def real_steps(chosen: SamplingPolicy, seed: int, plan: Plan) -> list[float]:
    """The seconds of each step in real processes."""
    workload = ("--seed", str(seed))
    slots = plan.slots // SERVERS
    with BenchDeployment(servers=SERVERS, slots=slots, workload=workload) as deployment:
        run = deployment.client.run(
            dataset(seed),
            run_id=f"real-{chosen.name}",
            group_size=chosen.settings.group_size,
            recycling=chosen.settings.recycling,
            max_staleness=chosen.settings.max_staleness,
            prediction=chosen.settings.prediction,
        )
        seconds = []
        for version in range(1, plan.steps + 1):
            began = time.perf_counter()
            batch = run.rollout(plan.requested_batch_size)
            seconds.append(time.perf_counter() - began)
            run.update_weights("nothing", version)
            run.ack(batch)
        return seconds


def dataset(seed: int) -> Iterator[dict[str, object]]:
    """Rows in the order in which the simulation feeds them."""
    world = World(seed)
    for number in itertools.count():
        row, occurrence = world.prompt(number)
        yield {"data_source": ENVIRONMENT, "row": row, "occurrence": occurrence}
