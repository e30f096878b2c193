"""A Run of a few Jobs, alone and beside one of very many that has all Slots when it comes.

Both are measured in turns, in one deployment: while the small one is to be alone, the other may
hold no Slot.
"""

import time

from benchmarks.deployment import BenchDeployment
from benchmarks.fairness.beside_others import BesideOthers
from benchmarks.fairness.sampling import sampling
from rollyard.messages import Share

SERVERS = 2
GROUP_SIZE = 8
JOB_SECONDS = 1.0
"""Mean duration of a Job; durations are uniform within half of it to either side."""
SMALL_GROUPS = 2
LOOK_SECONDS = 0.05


def measure(slots: int, large_jobs: int, rounds: int) -> BesideOthers:
    """Seconds of the small Run, in each of the rounds."""
    measured = BesideOthers()
    with BenchDeployment(
        servers=SERVERS, slots=slots // SERVERS, workload=("--job-seconds", str(JOB_SECONDS))
    ) as deployment:
        groups = large_jobs // GROUP_SIZE
        large = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=large_jobs, prompts=groups)
        with sampling([large]):
            _wait_until_fed(deployment, groups)
            for _ in range(rounds):
                deployment.share(large, Share(max_slots=0))
                for agent in deployment.agents:
                    agent.ask("/empty")
                measured.alone.append(_seconds(deployment))
                deployment.share(large, Share())
                for agent in deployment.agents:
                    agent.ask("/full")
                time.sleep(JOB_SECONDS)  # until its jobs end one after the other again
                measured.beside.append(_seconds(deployment))
    return measured


def _seconds(deployment: BenchDeployment) -> float:
    """Time until a new Run of a few Jobs, and no more, has them in its Batch."""
    run = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=8, prompts=SMALL_GROUPS)
    began = time.perf_counter()
    run.ack(run.rollout(SMALL_GROUPS))
    seconds = time.perf_counter() - began
    run.finish()
    return seconds


def _wait_until_fed(deployment: BenchDeployment, groups: int) -> None:
    while max(run.counters.groups_fed for run in deployment.client.status().runs) < groups:
        time.sleep(LOOK_SECONDS)
