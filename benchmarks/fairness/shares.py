"""Three Runs of weights 1, 1 and 2, whose Jobs differ in length, on the same Slots.

Each always has Jobs queued. What they get is counted by the stand-in agent servers, not by the
queues.
"""

import time

import msgspec

from benchmarks.deployment import BenchDeployment
from benchmarks.fairness.sampling import sampling
from rollyard.messages import Share
from rollyard.training_run import TrainingRun

SERVERS = 2
GROUP_SIZE = 8
SETTLE_SECONDS = 3.0


class Sharing(msgspec.Struct, frozen=True):
    weight: float
    job_seconds: float
    """Mean duration of a Job of this Run."""


RUNS = {
    "one": Sharing(weight=1, job_seconds=0.5),
    "longer": Sharing(weight=1, job_seconds=1.0),
    "heavier": Sharing(weight=2, job_seconds=0.7),
}


class Shared(msgspec.Struct):
    """What the Runs got while they all waited."""

    slot_seconds: dict[str, float]
    parts: dict[str, float]
    """Run -> its part of the Slot seconds, over the part that its weight says."""

    @property
    def worst(self) -> float:
        """The greatest distance of such a ratio from 1."""
        return max(abs(part - 1) for part in self.parts.values())


def measure(slots: int, seconds: float) -> Shared:
    with BenchDeployment(
        servers=SERVERS, slots=slots // SERVERS, workload=("--job-seconds-of-rows",)
    ) as deployment:
        runs = {name: _run(deployment, each, slots) for name, each in RUNS.items()}
        with sampling(list(runs.values())):
            time.sleep(SETTLE_SECONDS)
            before = {name: deployment.slot_seconds(run) for name, run in runs.items()}
            time.sleep(seconds)
            got = {name: deployment.slot_seconds(run) - before[name] for name, run in runs.items()}
    whole, weights = sum(got.values()), sum(each.weight for each in RUNS.values())
    return Shared(
        {name: round(seconds, 1) for name, seconds in got.items()},
        {name: got[name] / whole * weights / each.weight for name, each in RUNS.items()},
    )


def _run(deployment: BenchDeployment, sharing: Sharing, slots: int) -> TrainingRun:
    row = {"seconds": sharing.job_seconds}
    run = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=2 * slots, row=row)
    deployment.share(run, Share(weight=sharing.weight))
    return run
