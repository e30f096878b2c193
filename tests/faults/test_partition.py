"""Fault 2 of the fault catalogue in docs/reliability.md: agent servers are cut off, and heal.

What they finished meanwhile comes too late: it is refused, counted, and nobody's Job.
"""

import time
from collections.abc import Iterator

import pytest
import requests

from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each
from tests.faults.partition import MEANS, Partition
from tests.waiting import until

JOBS = 200


@pytest.fixture(params=MEANS, ids=lambda means: means.__name__.lower())
def partition(request: pytest.FixtureRequest) -> Iterator[Partition]:
    partition: Partition = request.param()
    yield partition
    partition.close()


def test_results_made_during_a_partition_are_refused_and_every_job_is_accepted_once(
    make_deployment: MakeDeployment, partition: Partition
) -> None:
    deployment = make_deployment(slots=JOBS // 2, lease_seconds=1.5)
    start_with_two_servers_beyond(deployment, partition)
    rows = [{"number": n, "gate": str(deployment.gate)} for n in range(JOBS)]
    batch = deployment.rollout(rows, "cut")
    deployment.wait_for_running(JOBS)
    deployment.cluster.start_agent(2)
    deployment.wait_for_servers(3)
    partition.cut()
    deployment.gate.touch()
    time.sleep(2 * deployment.settings.lease_seconds)
    partition.heal()
    groups = batch.result(60)
    # at least: on a busy machine the servers that healed run, and lose, some of the Jobs again
    until("late results are refused", lambda: deployment.counters("cut").results_refused >= JOBS)
    assert_once_each(groups, range(JOBS), deployment.counters("cut"))
    assert all(group.results[0].lease.attempt > 1 for group in groups.groups)
    metrics = requests.get(deployment.cluster.orchestrator_urls[0] + "/metrics", timeout=5).text
    refused = deployment.counters("cut").results_refused
    assert f'rollyard_results_refused_total{{run="cut"}} {refused}.0' in metrics
    deployment.wait_for_servers(3)


def start_with_two_servers_beyond(deployment: FaultDeployment, partition: Partition) -> None:
    deployment.start_services(*partition.orchestrator_options)
    for index in (0, 1):
        deployment.cluster.start_agent(index, partition.beyond(deployment.cluster, index))
    deployment.wait_for_servers(2)
