"""The deployment of the benchmarks is a real one: what it measures has happened."""

from collections.abc import Iterator

import pytest

from benchmarks.deployment import BenchDeployment


@pytest.fixture(scope="module")
def deployment() -> Iterator[BenchDeployment]:
    with BenchDeployment(servers=2, slots=4, workload=("--job-seconds", "0")) as deployment:
        yield deployment


def test_a_batch_of_no_op_jobs_is_complete(deployment: BenchDeployment) -> None:
    run = deployment.run(group_size=4, look_ahead_jobs=8)
    batch = run.rollout(10)
    assert [len(group.results) for group in batch.groups] == [4] * 10


def test_idle_time_is_measured_for_every_slot_that_worked_before(
    deployment: BenchDeployment,
) -> None:
    run = deployment.run(group_size=4, look_ahead_jobs=8)
    run.ack(run.rollout(10))
    gaps = [gap for agent in deployment.agents for gap in agent.idle_times().gaps]
    assert len(gaps) >= 40
    assert min(gaps) > 0


def test_processor_time_is_counted_for_each_part(deployment: BenchDeployment) -> None:
    spent = deployment.cpu_seconds()
    assert set(spent) == {"orchestrator", "redis", "agents"}
    assert min(spent.values()) > 0
