"""Environments stepped one trajectory at a time, or all together, turn by turn: one seed.

A seed is a training run of `STEPS` steps, each of which waits for its last trajectory. A turn takes
its environment a normally distributed time; generation is not counted. Together, a turn takes as
long as the slowest environment; alone, a trajectory waits for no other.
"""

import math

from rollyard.messages import Criterion, RunSettings
from simulator.chance import normal, uniforms
from simulator.dataset import Draw, Try
from simulator.plan import Plan
from simulator.policies import RUN, SamplingPolicy
from simulator.training import simulate

TRAJECTORIES = 128
GROUP_SIZE = 8
TURNS = 30
STEPS = 100
MEAN_SECONDS = 10.0


class TurnTaking:
    """The dataset of one step, in which every row is a Group."""

    rows = TRAJECTORIES // GROUP_SIZE

    def __init__(self, sigma: float, seed: int, step: int) -> None:
        self.seconds = [
            [_seconds(sigma, seed, step, trajectory, turn) for turn in range(TURNS)]
            for trajectory in range(TRAJECTORIES)
        ]

    def prompt(self, number: int) -> tuple[int, int]:
        occurrence, row = divmod(number, self.rows)
        return row, occurrence

    def draw(self, wanted: Try, weight_version: int) -> Draw:
        return Draw(1.0, math.fsum(self.seconds[wanted.row * GROUP_SIZE + wanted.member]))


def stepping(sigma: float, seed: int) -> tuple[float, float]:
    """Two ratios of times: together over alone, and alone on our Slots over the longest trajectory,
    which is the lower bound."""
    settings = RunSettings(
        run_id=RUN, group_size=GROUP_SIZE, criterion=Criterion.COMPLETE, look_ahead_jobs=0
    )
    alone = SamplingPolicy(name="alone", settings=settings)
    plan = Plan(slots=TRAJECTORIES, requested_batch_size=TurnTaking.rows, steps=1, warm_up=0)
    together = ours = least = 0.0
    for step in range(STEPS):
        turns = TurnTaking(sigma, seed, step)
        together += math.fsum(max(turn) for turn in zip(*turns.seconds, strict=True))
        least += max(math.fsum(trajectory) for trajectory in turns.seconds)
        ours += simulate(turns, alone, plan).step_seconds
    return together / ours, ours / least


def _seconds(sigma: float, *turn: int) -> float:
    chance, _ = uniforms("turn", *turn)
    return max(0.0, MEAN_SECONDS + sigma * normal(chance))
