"""The yard of the benchmarks is a real one: what it measures has happened."""

from collections.abc import Iterator

import pytest

from benchmarks.yard import Yard


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with Yard(servers=2, slots=4, job_seconds=0) as yard:
        yield yard


def test_a_batch_of_no_op_jobs_is_complete(yard: Yard) -> None:
    run = yard.run(group_size=4, look_ahead_jobs=8)
    batch = run.rollout(10)
    assert [len(group.results) for group in batch.groups] == [4] * 10


def test_idle_time_is_measured_for_every_slot_that_worked_before(yard: Yard) -> None:
    run = yard.run(group_size=4, look_ahead_jobs=8)
    run.ack(run.rollout(10))
    gaps = [gap for agent in yard.agents for gap in agent.measured().gaps]
    assert len(gaps) >= 40
    assert min(gaps) > 0


def test_processor_time_is_counted_for_each_part(yard: Yard) -> None:
    spent = yard.cpu_seconds()
    assert set(spent) == {"orchestrator", "redis", "agents"}
    assert min(spent.values()) > 0
