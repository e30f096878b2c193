"""Fault 5 of the fault catalogue in docs/reliability.md: one of two orchestrators stands still.

Neither leads. Every move of the queues is atomic, and what was concluded from an old state is
refused, however late it comes.
"""

import random
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.conftest import MakeDeployment
from tests.faults.crash_points import CrashPoint, CrashProxy, Side
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds
from tests.waiting import until

NOTHING = ("_", "$-1", "*-1")
"""Redis's ways to say it; a refused conclusion answers so."""


@pytest.fixture
def deployment(make_deployment: MakeDeployment) -> FaultDeployment:
    return make_deployment(orchestrators=2, lease_seconds=1.0, heartbeat_seconds=0.25)


@pytest.fixture
def proxy(deployment: FaultDeployment) -> Iterator[CrashProxy]:
    """Between the first orchestrator and Redis; its strike is a SIGSTOP."""
    stop = lambda: deployment.cluster.service("orchestrator-0").signal(signal.SIGSTOP)  # noqa: E731
    proxy = CrashProxy(deployment.ports.redis, stop)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("seed", range(scaled(1, 10)))
def test_what_a_paused_orchestrator_concludes_from_an_old_state_changes_nothing(
    deployment: FaultDeployment, proxy: CrashProxy, seed: int
) -> None:
    deployment.cluster.door_url = deployment.cluster.orchestrator_urls[1]
    deployment.start()
    deployment.cluster.service("orchestrator-0").kill()
    deployment.cluster.start_orchestrator(0, "--redis-url", proxy.url)
    deployment.train()
    proxy.arm(CrashPoint("conclude", Side.BEFORE), skip=random.Random(seed).randrange(5))
    until("the first orchestrator concludes something", proxy.struck.is_set)
    concluded = deployment.concluded()
    time.sleep(2 * deployment.settings.lease_seconds)
    until("the second one concludes it", lambda: deployment.concluded() > concluded)
    proxy.go_on()
    deployment.cluster.service("orchestrator-0").signal(signal.SIGCONT)
    until("the old conclusion is answered", lambda: proxy.late_answer)
    assert proxy.late_answer in NOTHING
    deployment.wait_for_progress(20)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems


@pytest.mark.timeout(timeout_seconds(600))
def test_every_job_ends_once_while_either_orchestrator_stands_still(
    deployment: FaultDeployment,
) -> None:
    deployment.start()
    deployment.train()
    for turn in range(scaled(2, 20)):
        deployment.wait_for_progress(10)
        paused = f"orchestrator-{turn % 2}"
        deployment.cluster.service(paused).signal(signal.SIGSTOP)
        time.sleep(deployment.settings.pause_seconds)
        deployment.cluster.service(paused).signal(signal.SIGCONT)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
