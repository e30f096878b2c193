"""Workloads of stand-in agent servers: the durations and the Results of their Jobs."""

import random
from array import array
from collections.abc import Callable

import msgspec

from rollyard.messages import Assignment, Grade, Outcome, Result, Timings, Trajectory, WeightSpan
from simulator.dataset import Try, World

ENVIRONMENT = "noop"
SECONDS_OF_A_MINUTE = 0.08
"""Duration of a simulated minute. What a Job costs in real processes does not shrink with it: at
half of this, two cores are busy with that alone for an eighth of a step and more."""

TRAJECTORY = Trajectory(
    token_ids=array("i", range(16)),
    loss_mask=array("b", [0] * 8 + [1] * 8),
    logprobs=array("f", [0.0] * 8 + [-0.5] * 8),
    weight_spans=(),
    turns=(),
    messages=(),
)


class Planned(msgspec.Struct, frozen=True):
    seconds: float | None
    """Duration of the Job; None holds it until it is released."""
    result: Result


StandInWorkload = Callable[[Assignment, int], Planned]
"""(a Job, the weight version that is served when it starts) -> its duration and its Result."""


def no_ops(job_seconds: float | None) -> StandInWorkload:
    """A workload in which every Job succeeds after about so many seconds."""

    def plan(assignment: Assignment, weight_version: int) -> Planned:
        # spread, so that the Slots do not end their Jobs together
        seconds = job_seconds and job_seconds * random.uniform(0.5, 1.5)
        return Planned(seconds, _completed(assignment, 1.0, TRAJECTORY, Timings()))

    return plan


def as_rows_say(assignment: Assignment, weight_version: int) -> Planned:
    """A workload in which a Job takes about as many seconds as its row says."""
    return no_ops(assignment.job.prompt.instance["seconds"])(assignment, weight_version)


def replay(seed: int) -> StandInWorkload:
    """A workload in which each Job has the length and the reward that the simulated dataset of this
    seed draws for it."""
    world = World(seed)

    def plan(assignment: Assignment, weight_version: int) -> Planned:
        job, place = assignment.job, assignment.job.prompt.instance
        wanted = Try(place["row"], place["occurrence"], job.member, assignment.lease.attempt - 1)
        draw = world.draw(wanted, weight_version)
        seconds = draw.seconds / 60 * SECONDS_OF_A_MINUTE
        span = WeightSpan(version=weight_version, start=8, end=16)
        trajectory = msgspec.structs.replace(TRAJECTORY, weight_spans=(span,))
        timings = Timings(run_seconds=seconds)
        return Planned(seconds, _completed(assignment, draw.reward, trajectory, timings))

    return plan


def _completed(
    assignment: Assignment, reward: float, trajectory: Trajectory, timings: Timings
) -> Result:
    return Result(
        lease=assignment.lease,
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=reward),
        trajectory=trajectory,
        timings=timings,
    )
