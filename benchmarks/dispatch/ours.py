"""Rollyard itself, from the prompts that a trainer feeds to the Batch in its hands."""

import time

import msgspec

from benchmarks.deployment import ASK_SECONDS, BenchDeployment

GROUP_SIZE = 8
SERVERS = 2
SLOTS = 128
"""Slots of all servers together: as many as the bare client has jobs in flight."""
LOOK_AHEAD_JOBS = 512
WARM_UP_JOBS = 200


class Drained(msgspec.Struct):
    jobs_per_second: float
    cpu_microseconds: dict[str, float]
    """Processor time for a Job, by part."""


def no_op_jobs(jobs: int) -> Drained:
    """Durable no-op Jobs: fed, leased, run over HTTP, reported, accepted, delivered, fetched."""
    with BenchDeployment(
        servers=SERVERS, slots=SLOTS // SERVERS, workload=("--job-seconds", "0")
    ) as deployment:
        run = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=LOOK_AHEAD_JOBS)
        run.ack(run.rollout(WARM_UP_JOBS // GROUP_SIZE))
        before, began = deployment.cpu_seconds(), time.perf_counter()
        run.rollout(jobs // GROUP_SIZE, timeout_seconds=ASK_SECONDS)
        seconds, after = time.perf_counter() - began, deployment.cpu_seconds()
    spent = {part: (after[part] - before[part]) / jobs * 1e6 for part in after}
    return Drained(jobs / seconds, spent)
