"""Fault 2 of the fault catalogue in docs/reliability.md: agent servers are cut off, and heal.

What they finished meanwhile comes too late: it is refused, counted, and nobody's Job.
"""

import time
from collections.abc import Iterator

import pytest
import requests

from tests.faults.conftest import MakeYard
from tests.faults.partition import MEANS, Partition
from tests.faults.yard import FaultYard, assert_once_each
from tests.waiting import until

JOBS = 200


@pytest.fixture(params=MEANS, ids=lambda means: means.__name__.lower())
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    partition: Partition = request.param()
    yield partition
    partition.close()


def test_results_made_during_a_partition_are_refused_and_every_job_is_accepted_once(
    make_yard: MakeYard, partition: Partition
) -> None:
    yard = make_yard(slots=JOBS // 2, lease_seconds=1.5)
    start_with_two_servers_beyond(yard, partition)
    rows = [{"number": n, "gate": str(yard.gate)} for n in range(JOBS)]
    batch = yard.rollout(rows, "cut")
    yard.wait_for_running(JOBS)
    yard.troupe.start_agent(2)
    yard.wait_for_servers(3)
    partition.cut()
    yard.gate.touch()
    time.sleep(2 * yard.settings.lease_seconds)
    partition.heal()
    groups = batch.result(60)
    # at least: on a busy machine the servers that healed run, and lose, some of the Jobs again
    until("late results are refused", lambda: yard.counters("cut").results_refused >= JOBS)
    assert_once_each(groups, range(JOBS), yard.counters("cut"))
    assert all(group.results[0].lease.attempt > 1 for group in groups.groups)
    metrics = requests.get(yard.troupe.orchestrator_urls[0] + "/metrics", timeout=5).text
    refused = yard.counters("cut").results_refused
    assert f'rollyard_results_refused_total{{run="cut"}} {refused}.0' in metrics
    yard.wait_for_servers(3)


def start_with_two_servers_beyond(yard: FaultYard, partition: Partition) -> None:
    yard.start_services(*partition.orchestrator_options)
    for index in (0, 1):
        yard.troupe.start_agent(index, partition.beyond(yard.troupe, index))
    yard.wait_for_servers(2)
