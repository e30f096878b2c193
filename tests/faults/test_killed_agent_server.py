"""Fault 1 of the fault catalogue in docs/reliability.md: an agent server is killed amid its Jobs.

Its Jobs wait again, first in line, as soon as it is found to have ended.
"""

import random
import time

import pytest

from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds

KILL_EVERY_SECONDS = 2.0
AWAY_SECONDS = 1.0


@pytest.mark.timeout(timeout_seconds(600))
@pytest.mark.parametrize("seed", range(scaled(1, 3)))
def test_jobs_of_a_killed_agent_server_wait_again_within_a_lease_and_two_seconds(
    make_deployment: MakeDeployment, seed: int
) -> None:
    deployment = make_deployment(seed=seed, agent_servers=4)
    deployment.start()
    deployment.train()
    deployment.wait_for_progress(20)
    draw = random.Random(seed)
    for kills in range(scaled(12, 30)):
        if kills >= scaled(3, 30) and deployment.observed("requeued"):
            break
        kill_for_a_while(deployment, draw.randrange(4))
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
    assert deployment.observed("requeued"), "no server was killed amid a job"
    assert verdict.max_requeue_seconds <= deployment.settings.lease_seconds + 2


def kill_for_a_while(deployment: FaultDeployment, index: int) -> None:
    deployment.cluster.kill_agent(index)
    deployment.observer.killed(f"agent-{index}")
    time.sleep(AWAY_SECONDS)  # the catalogue's fault is by the clock
    deployment.cluster.start_agent(index)
    time.sleep(KILL_EVERY_SECONDS - AWAY_SECONDS)


def test_jobs_of_an_agent_server_that_never_comes_back_do_not_wait_for_the_end_of_its_lease(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=2, slots=8, lease_seconds=40.0)
    deployment.start_services()
    deployment.cluster.start_agent(0)
    deployment.wait_for_servers(1)
    rows = [{"number": number, "gate": str(deployment.gate)} for number in range(8)]
    batch = deployment.rollout(rows, "lost")
    deployment.wait_for_running(8)
    deployment.cluster.start_agent(1)
    deployment.wait_for_servers(2)
    deployment.cluster.kill_agent(0)
    groups = batch.result(deployment.settings.lease_seconds - 10).groups
    assert [group.results[0].lease.server_id for group in groups] == ["agent-1"] * 8
    assert {group.results[0].lease.attempt for group in groups} == {2}
