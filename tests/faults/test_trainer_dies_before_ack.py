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
from tests.faults.conftest import MakeYard
from tests.faults.scale import scaled, timeout_seconds
from tests.faults.yard import FaultYard
from tests.waiting import until

DEATHS = scaled(5, 50)
LONGEST_SECONDS = 0.05
"""From the receipt of a Batch to the kill; an acknowledgement takes less."""


def received(yard: FaultYard) -> int:
    events = history.read(yard.settings.directory / JOURNAL)
    return sum(event["event"] == "received" for event in events)


def dead(yard: FaultYard) -> bool:
    return yard.troupe.trainer_exit() is not None


def die_after_a_batch(yard: FaultYard, seconds: float) -> None:
    before = received(yard)
    yard.train()
    until("the trainer receives a batch", lambda: received(yard) > before)
    time.sleep(seconds)  # the moment is what is random
    yard.troupe.kill_service("trainer")


def finish(yard: FaultYard) -> None:
    """Let the trainer end in peace, however often it dies before."""
    (yard.settings.directory / ENOUGH).touch()
    while yard.troupe.trainer_exit() != 0:
        yard.train()
        until("the trainer ends", lambda: dead(yard))


@pytest.mark.timeout(timeout_seconds(600))
def test_a_batch_that_was_not_acknowledged_comes_again_the_same(make_yard: MakeYard) -> None:
    yard = make_yard(seed=14, trainer_crash_share=0.5)
    yard.start()
    for _ in range(DEATHS):
        yard.train()
        until("the trainer dies", lambda: dead(yard))
        assert yard.troupe.trainer_exit() == -signal.SIGKILL
    finish(yard)
    verdict = yard.verdict()
    assert verdict.ok, verdict.problems
    assert verdict.batches_redelivered >= DEATHS


@pytest.mark.timeout(timeout_seconds(600))
def test_a_trainer_killed_at_any_moment_trains_on_every_sample_once(make_yard: MakeYard) -> None:
    yard = make_yard(seed=14)
    yard.start()
    draw = random.Random(14)
    for _ in range(DEATHS):
        die_after_a_batch(yard, draw.uniform(0, LONGEST_SECONDS))
    finish(yard)
    verdict = yard.verdict()
    assert verdict.ok, verdict.problems
