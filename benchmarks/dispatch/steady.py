"""Slots that work on Jobs of some duration: their idle time between two Jobs, and its cost.

A trainer keeps the task queue filled, so that a Slot only ever waits for Rollyard.
"""

import threading
import time

import msgspec

from benchmarks.deployment import BenchDeployment
from rollyard.training_run import TrainingRun

GROUP_SIZE = 8
SERVERS = 2
JOB_SECONDS = 0.85
"""Mean duration of a Job; durations are uniform within half of it to either side."""
SETTLE_SECONDS = 3.0


class Steady(msgspec.Struct):
    slots: int
    jobs_per_second: float
    gaps_ms: list[float]
    """Times from a free Slot to the start of its next Job, sorted."""

    def percentile(self, share: float) -> float:
        return self.gaps_ms[min(len(self.gaps_ms) - 1, int(share * len(self.gaps_ms)))]


def busy_slots(slots: int, seconds: float) -> Steady:
    """Keep `slots` Slots busy and watch them for `seconds`."""
    with BenchDeployment(
        servers=SERVERS, slots=slots // SERVERS, workload=("--job-seconds", str(JOB_SECONDS))
    ) as deployment:
        run = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=slots)
        trainer = threading.Thread(target=_train, args=(run, slots, seconds), daemon=True)
        trainer.start()
        time.sleep(SETTLE_SECONDS)
        for agent in deployment.agents:
            agent.idle_times()
        time.sleep(seconds)
        measured = [agent.idle_times() for agent in deployment.agents]
        trainer.join()
    gaps = sorted(gap * 1e3 for each in measured for gap in each.gaps)
    idle_seconds = sum(gaps) / len(gaps) / 1e3
    return Steady(slots, slots / (JOB_SECONDS + idle_seconds), gaps)


def _train(run: TrainingRun, slots: int, seconds: float) -> None:
    """Sample one Batch, which takes a little longer than the measurement."""
    jobs = (seconds + 2 * SETTLE_SECONDS) * slots / JOB_SECONDS
    run.rollout(-(-int(jobs) // GROUP_SIZE))
