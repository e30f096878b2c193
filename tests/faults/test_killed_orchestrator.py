"""Fault 4 of the fault catalogue in docs/reliability.md: the orchestrator is killed amid a move.

At each crash point in turn, in a seeded order: right before Redis hears of the move, and right
after it is made, before the orchestrator hears that. It goes on where Redis says.
"""

import random
from collections.abc import Iterator

import pytest

from rollyard.http import Peer
from rollyard.messages import Accepted, Prompt, RunSettings, RunStatus
from tests.faults.conftest import MakeDeployment
from tests.faults.crash_points import TELL, CrashPoint, CrashProxy, Side
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds
from tests.waiting import until

MOVES = ("submit", TELL, "lease", "report", "conclude", "heartbeat", "expire", "register")
POINTS = [CrashPoint(move, side) for move in MOVES for side in Side]
QUEUED_JOBS = 10_000
MAX_PASSED = scaled(2, 5)
"""How often a point may be passed before its kill."""


@pytest.fixture
def deployment(make_deployment: MakeDeployment) -> FaultDeployment:
    return make_deployment(lease_seconds=1.0, heartbeat_seconds=0.2)


@pytest.fixture
def proxy(deployment: FaultDeployment) -> Iterator[CrashProxy]:
    """Between the orchestrator and Redis; its strike is a kill -9."""
    proxy = CrashProxy(
        deployment.ports.redis, lambda: deployment.cluster.service("orchestrator-0").kill()
    )
    yield proxy
    proxy.close()


@pytest.mark.timeout(timeout_seconds(300))
@pytest.mark.parametrize("seed", range(scaled(1, 20)))
def test_the_orchestrator_goes_on_after_a_kill_at_any_point(
    deployment: FaultDeployment, proxy: CrashProxy, seed: int
) -> None:
    deployment.start("--redis-url", proxy.url)
    queue_many(deployment)
    deployment.train()
    deployment.wait_for_progress(1)
    draw = random.Random(seed)
    slowest = 0.0
    for point in draw.sample(POINTS, len(POINTS)):
        kill_at(deployment, proxy, point, skip=draw.randrange(MAX_PASSED))
        slowest = max(slowest, deployment.cluster.start_orchestrator(0, "--redis-url", proxy.url))
        deployment.wait_for_progress(4)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
    print(f"\nready again within {slowest:.1f} s")
    assert deployment.counters("many").jobs_queued == QUEUED_JOBS


def queue_many(deployment: FaultDeployment) -> None:
    """Jobs of a Run that is not asked for a Batch: they stay where they are."""
    peer = Peer(deployment.cluster.orchestrator_urls[0], name="orchestrator")
    settings = RunSettings(run_id="many", group_size=500)
    peer.post("/runs", settings, RunStatus)
    for number in range(QUEUED_JOBS // settings.group_size):
        prompt = Prompt(prompt_id=f"p{number}", instance={"data_source": "chaos"})
        peer.post("/runs/many/prompts", [prompt], Accepted)


def kill_at(deployment: FaultDeployment, proxy: CrashProxy, point: CrashPoint, skip: int) -> None:
    proxy.arm(point, skip)
    until(f"the orchestrator is killed {point}", lambda: struck(deployment, proxy, point), 20)


def struck(deployment: FaultDeployment, proxy: CrashProxy, point: CrashPoint) -> bool:
    """Agent servers register only when they start, so one of them does."""
    if point.move == "register" and not proxy.struck.is_set():
        deployment.cluster.kill_agent(0)
        deployment.cluster.start_agent(0)
        return proxy.struck.wait(2)
    return proxy.struck.is_set()
