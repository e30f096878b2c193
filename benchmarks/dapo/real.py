"""The same draws through real HTTP, Redis and the orchestrator, beside the virtual clock."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.noop_agent import ENVIRONMENT
from benchmarks.yard import Yard
from rollyard.messages import NO_BOUND, RunSettings
from simulator.plan import Plan
from simulator.policies import policy
from simulator.training import simulate
from simulator.workload import Workload, World

SLOTS = 128
SCALE = 0.04 / 60
"""A minute takes 40 ms: 350 Jobs a second."""
LOOK_AHEAD = SLOTS // 8
PLAN = Plan(slots=SLOTS, steps=12, warm_up=4)


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """A step, in milliseconds."""

    real_ms: float
    simulated_ms: float
    real_steps_ms: tuple[float, ...]
    """All of them, with the warm-up."""

    @property
    def ratio(self) -> float:
        return self.real_ms / self.simulated_ms


def real_beside_simulated(seed: int) -> Real:
    """There is no trainer and no weights, so that no trajectory is ever too old."""
    world, chosen = World(seed), policy("resume", max_staleness=NO_BOUND)
    settings = msgspec.structs.replace(chosen.settings, look_ahead_jobs=LOOK_AHEAD)
    simulated = simulate(world, msgspec.structs.replace(chosen, settings=settings), PLAN)
    steps = replayed(world, seed, settings)
    measured = steps[PLAN.warm_up :]
    return Real(
        real_ms=1e3 * sum(measured) / len(measured),
        simulated_ms=1e3 * simulated.step_seconds * SCALE,
        real_steps_ms=tuple(round(1e3 * step, 1) for step in steps),
    )


def replayed(world: World, seed: int, settings: RunSettings) -> list[float]:
    """Real seconds of each step, as a trainer sees them that trains in no time."""
    agent = ["benchmarks.dapo.replay_agent", "--seed", str(seed), "--scale", str(SCALE)]
    with Yard(servers=1, slots=SLOTS, agent=agent) as yard:
        run = yard.client.run(
            rows_of(world),
            run_id=f"replay-{seed}",
            group_size=settings.group_size,
            max_staleness=settings.max_staleness,
            look_ahead_jobs=settings.look_ahead_jobs,
        )
        steps, began = list[float](), time.perf_counter()
        for _ in range(PLAN.steps):
            run.ack(run.rollout(PLAN.requested_batch_size))
            steps.append(time.perf_counter() - began)
            began += steps[-1]
    return steps


def rows_of(workload: Workload) -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        row, occurrence = workload.prompt(number)
        yield {"data_source": ENVIRONMENT, "row": row, "occurrence": occurrence}
