"""Training during rollouts, and rollouts while attempts fail and a server dies, for one seed."""

import math

import msgspec

from benchmarks.dapo.cases import PLAN
from simulator.dataset import World
from simulator.outcome import TrainingOutcome
from simulator.plan import Plan, Trouble
from simulator.policies import policy
from simulator.training import simulate

TRAIN_SHARES = (0.3, 0.8, 1.5)
"""Durations of training, as multiples of a step's rollouts alone."""
TROUBLE = Trouble(failing_share=0.05, dies_after_seconds=10_800.0)


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """The worst results over all `TRAIN_SHARES`."""

    max_staleness: int
    ratio: float
    """Time of a step, over the longer of its rollouts alone and its training alone."""
    oldest: int


class Failing(msgspec.Struct, frozen=True, kw_only=True):
    overhead: float
    """Increase of the Slot time over a run without failures, without the time lost in them. A dead
    server has no Slot time."""
    lost: float
    """Share of the Slot time that ended in failures."""
    groups_dropped: int
    """Groups dropped for an infrastructure failure."""


def overlap(max_staleness: int, seed: int) -> Overlap:
    world, chosen = World(seed), policy("resume", max_staleness=max_staleness)
    rollout = simulate(world, chosen, PLAN).step_seconds
    ratios, oldest = [], 0
    for share in TRAIN_SHARES:
        plan = msgspec.structs.replace(PLAN, train_seconds=share * rollout, ahead=max_staleness + 1)
        outcome = simulate(world, chosen, plan)
        ratios.append(outcome.step_seconds / max(rollout, plan.train_seconds))
        oldest = max(oldest, *outcome.ages)
    return Overlap(max_staleness=max_staleness, ratio=max(ratios), oldest=oldest)


def failing(seed: int) -> Failing:
    chosen, world = policy("resume"), World(seed)
    whole = Plan(slots=PLAN.slots, warm_up=0)
    troubled = msgspec.structs.replace(whole, trouble=msgspec.structs.replace(TROUBLE, seed=seed))
    quiet, loud = simulate(world, chosen, whole), simulate(world, chosen, troubled)
    available = _available(loud)
    return Failing(
        overhead=(available - loud.lost_seconds) / _available(quiet) - 1,
        lost=loud.lost_seconds / available,
        groups_dropped=loud.groups_lost,
    )


def _available(outcome: TrainingOutcome) -> float:
    return math.fsum(step.available for step in outcome.steps)
