"""Fault 7 of the fault catalogue in docs/reliability.md: Redis forgets its last two seconds.

As one with `appendfsync everysec` may when it dies, and a replica that takes over. What was lost is
done again, or the trainer is told.
"""

import random
import time
from pathlib import Path

import pytest

from chaos import work
from rollyard import Client
from rollyard.errors import Conflict
from rollyard.messages import Criterion
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each
from tests.faults.scale import scaled, timeout_seconds

ROWS = 400


@pytest.mark.timeout(timeout_seconds(600))
@pytest.mark.parametrize("seed", range(scaled(1, 10)))
def test_every_prompt_is_sampled_once_although_redis_forgets(
    make_deployment: MakeDeployment, seed: int
) -> None:
    deployment = make_deployment(seed=seed, durable=True)
    deployment.start()
    draw = random.Random(seed)
    batch = deployment.rollout([{"number": number} for number in range(ROWS)], "forgetful")
    for _ in range(3):
        deployment.wait_for_progress(20, run_id="forgetful")
        size = log_of(deployment).stat().st_size
        time.sleep(draw.uniform(0.1, 0.5))
        roll_back(deployment, size)
    groups = batch.result(60)
    assert_once_each(groups, range(ROWS), deployment.counters("forgetful"))


def log_of(deployment: FaultDeployment) -> Path:
    (log,) = (deployment.settings.directory / "redis" / "appendonlydir").glob("*.incr.aof")
    return log


def roll_back(deployment: FaultDeployment, size: int) -> None:
    """To when its log was so long."""
    deployment.cluster.service("redis").kill()
    with log_of(deployment).open("r+b") as log:
        log.truncate(size)
    deployment.cluster.start_redis()


def test_a_trainer_is_told_that_a_batch_it_acknowledged_is_forgotten(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(durable=True)
    deployment.start()
    rows = [{"data_source": work.DATA_SOURCE, "number": number} for number in range(16)]
    run = Client(deployment.cluster.door_url).run(
        rows, run_id="forgetful", group_size=1, criterion=Criterion.COMPLETE
    )
    batch = run.rollout(8)
    size = log_of(deployment).stat().st_size
    run.ack(batch)
    roll_back(deployment, size)
    with pytest.raises(Conflict, match="has forgotten that batch"):
        run.rollout(8)
