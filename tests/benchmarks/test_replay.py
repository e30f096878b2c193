"""The real run of the sampling benchmark has the simulator's own draws."""

from benchmarks.dapo.real import dataset
from benchmarks.deployment import BenchDeployment
from benchmarks.workloads import SECONDS_OF_A_MINUTE
from rollyard.messages import NO_BOUND
from simulator.dataset import Try, World


def test_jobs_come_to_what_the_world_of_the_seed_has_drawn() -> None:
    with BenchDeployment(servers=1, slots=16, workload=("--seed", "3")) as deployment:
        run = deployment.client.run(
            dataset(3), run_id="replay", group_size=4, max_staleness=NO_BOUND
        )
        batches = []
        for _ in range(3):  # between them, jobs are parked and resumed
            batches.append(run.rollout(2))
            run.ack(batches[-1])
    for group in (group for batch in batches for group in batch.groups):
        instance = group.prompt.instance
        for member, result in enumerate(group.results):
            draw = World(3).draw(Try(instance["row"], instance["occurrence"], member, 0), 0)
            assert result.reward == draw.reward
            assert result.timings.run_seconds == draw.seconds / 60 * SECONDS_OF_A_MINUTE
