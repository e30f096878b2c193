"""Jobs in flight at once: all of them start, are held until the last one runs, and are reported."""

from concurrent.futures import ThreadPoolExecutor

import msgspec

from benchmarks.deployment import ASK_SECONDS, BenchDeployment
from rollyard.messages import Batch
from rollyard.training_run import TrainingRun

GROUP_SIZE = 4
SERVERS = 5


class InFlight(msgspec.Struct):
    in_flight: int
    jobs: int
    succeeded: int
    kib_per_job: float
    """Memory that a Job in flight takes in the orchestrator and in Redis."""
    cpu_microseconds: dict[str, float]
    """Processor time for a Job, by part."""

    @property
    def rollyard_cpu_microseconds(self) -> float:
        return self.cpu_microseconds["orchestrator"] + self.cpu_microseconds["redis"]


def measure(in_flight: int, rounds: int) -> InFlight:
    """Have `in_flight` Jobs in flight, `rounds` times."""
    with BenchDeployment(servers=SERVERS, slots=in_flight // SERVERS) as deployment:
        before, memory, succeeded = deployment.cpu_seconds(), deployment.resident_bytes(), 0
        most = memory
        groups = in_flight // GROUP_SIZE
        for _ in range(rounds):  # no prompt more: it would take a Slot that is free again
            run = deployment.run(group_size=GROUP_SIZE, look_ahead_jobs=0, prompts=groups)
            with ThreadPoolExecutor(1) as trainer:
                batch = trainer.submit(_batch, run, groups)
                for agent in deployment.agents:
                    agent.ask("/full")
                most = max(most, deployment.resident_bytes())
                for agent in deployment.agents:
                    agent.ask("/release")
                succeeded += sum(len(group.results) for group in batch.result().groups)
        after = deployment.cpu_seconds()
    jobs = in_flight * rounds
    return InFlight(
        in_flight=in_flight,
        jobs=jobs,
        succeeded=succeeded,
        kib_per_job=round((most - memory) / 1024 / in_flight, 2),
        cpu_microseconds={part: round((after[part] - before[part]) / jobs * 1e6) for part in after},
    )


def _batch(run: TrainingRun, groups: int) -> Batch:
    batch = run.rollout(groups, timeout_seconds=ASK_SECONDS)
    run.ack(batch)
    return batch
