"""Fault 6 of the fault catalogue in docs/reliability.md: Redis is killed while it is busy.

Whatever it answered is on disk. While it is away everybody waits, and asks again.
"""

import random
import time

import pytest

from tests.faults.conftest import MakeDeployment
from tests.faults.scale import scaled, timeout_seconds


@pytest.mark.timeout(timeout_seconds(600))
@pytest.mark.parametrize("seed", range(scaled(1, 2)))
def test_nothing_acknowledged_is_lost_when_redis_is_killed(
    make_deployment: MakeDeployment, seed: int
) -> None:
    deployment = make_deployment(seed=seed, durable=True)
    deployment.start()
    deployment.train()
    draw = random.Random(seed)
    for _ in range(scaled(4, 20)):
        deployment.wait_for_progress(8)
        time.sleep(draw.uniform(0.0, 0.1))  # anywhere in what goes on
        acknowledged = deployment.accepted()
        deployment.cluster.service("redis").kill()
        deployment.cluster.start_redis()
        assert deployment.accepted() >= acknowledged
    deployment.wait_for_progress(8)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
