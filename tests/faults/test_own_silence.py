"""Fault 26 of the fault catalogue in docs/reliability.md: the orchestrator, or Redis, stands still.

Nobody could be heard meanwhile, so nobody is judged by it; who is dead is still found out.
"""

import signal
import time

import pytest

from chaos.observer import PREFIX
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each
from tests.waiting import until

SERVERS, SLOTS = 4, 4
JOBS = SERVERS * SLOTS
PAUSES = 4
"""More than the servers that a Job may be lost with."""


def stand_still(deployment: FaultDeployment, service: str) -> None:
    """Stop all processes of the service for two Leases, and let it hear everybody again."""
    deployment.cluster.service(service).signal(signal.SIGSTOP)
    time.sleep(2 * deployment.settings.lease_seconds)
    deployment.cluster.service(service).signal(signal.SIGCONT)
    woken_at = deployment.redis.time()[0]
    until(
        "every server is heard of again",
        lambda: deployment.redis.zcount(PREFIX + "seen", woken_at + 1, "inf") == SERVERS,
        60.0,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", ["orchestrator-0", "redis"])
def test_a_silence_of_ours_is_charged_to_no_job(
    make_deployment: MakeDeployment, service: str
) -> None:
    deployment = make_deployment(agent_servers=SERVERS, slots=SLOTS)
    deployment.start()
    rows = [{"number": number, "gate": str(deployment.gate)} for number in range(JOBS)]
    batch = deployment.rollout(rows, "quiet")
    deployment.wait_for_running(JOBS)
    for _ in range(PAUSES):
        stand_still(deployment, service)
    counters = deployment.counters("quiet")
    assert (counters.attempts_failed, counters.jobs_dead, counters.jobs_leased) == (0, 0, JOBS)
    deployment.cluster.kill_agent(0)
    until(
        "the jobs of a server that is dead wait for another",
        lambda: deployment.counters("quiet").attempts_failed == SLOTS,
    )
    deployment.gate.touch()
    assert_once_each(batch.result(60), range(JOBS), deployment.counters("quiet"))
