"""Fault 14 of the fault catalogue in docs/reliability.md: the trainer dies between receive and ack.

The same Batch comes again, in the same order, until it is acknowledged, and the optimiser's journal
has every sample once. The trainer dies before or after it has written down a Batch, and, killed
from outside, at any moment.
"""

import random
import signal
import time

import pytest

from chaos import history
from chaos.trainer import ENOUGH, JOURNAL
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds
from tests.waiting import until

DEATHS = scaled(5, 50)
MAX_SECONDS = 0.05
"""From the receipt of a Batch to the kill; an acknowledgement takes less."""


def received(deployment: FaultDeployment) -> int:
    events = history.read(deployment.settings.directory / JOURNAL)
    return sum(event["event"] == "received" for event in events)


def dead(deployment: FaultDeployment) -> bool:
    return deployment.cluster.trainer_exit() is not None


def die_after_a_batch(deployment: FaultDeployment, seconds: float) -> None:
    before = received(deployment)
    deployment.train()
    until("the trainer receives a batch", lambda: received(deployment) > before)
    time.sleep(seconds)  # the moment is what is random
    deployment.cluster.service("trainer").kill()


def finish(deployment: FaultDeployment) -> None:
    """Let the trainer end in peace, however often it dies before."""
    (deployment.settings.directory / ENOUGH).touch()
    while deployment.cluster.trainer_exit() != 0:
        deployment.train()
        until("the trainer ends", lambda: dead(deployment))


@pytest.mark.timeout(timeout_seconds(600))
def test_a_batch_that_was_not_acknowledged_comes_again_the_same(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(seed=14, trainer_crash_share=0.5)
    deployment.start()
    for _ in range(DEATHS):
        deployment.train()
        until("the trainer dies", lambda: dead(deployment))
        assert deployment.cluster.trainer_exit() == -signal.SIGKILL
    finish(deployment)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
    assert verdict.batches_redelivered >= DEATHS


@pytest.mark.timeout(timeout_seconds(600))
def test_a_trainer_killed_at_any_moment_trains_on_every_sample_once(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(seed=14)
    deployment.start()
    draw = random.Random(14)
    for _ in range(DEATHS):
        die_after_a_batch(deployment, draw.uniform(0, MAX_SECONDS))
    finish(deployment)
    verdict = deployment.verdict()
    assert verdict.ok, verdict.problems
