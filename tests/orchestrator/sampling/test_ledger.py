"""What Batches cost and whom they prefer."""

import random

import pytest

from orchestrator.sampling.ledger import Ledger


def lengths(draw: random.Random, count: int) -> list[float]:
    return [draw.lognormvariate(2.0, 0.7) for _ in range(count)]


def test_a_batch_like_all_that_were_started_is_without_bias() -> None:
    draw, ledger = random.Random(1), Ledger()
    started = lengths(draw, 4000)
    for seconds in started:
        ledger.finished(seconds)
    bias = ledger.bias(started[::4], {0: 1000})
    assert bias.mean_ratio == pytest.approx(1.0, abs=0.03)
    assert bias.long_share == pytest.approx(bias.started_long_share, abs=0.02)
    assert bias.started_long_share == pytest.approx(0.1, abs=0.03)


def test_a_batch_of_short_ones_is_seen_even_if_the_long_ones_were_stopped() -> None:
    draw, ledger = random.Random(2), Ledger()
    taken = []
    for seconds in lengths(draw, 4000):
        patience = draw.uniform(5.0, 30.0)
        if seconds <= patience:
            ledger.finished(seconds)
            taken.append(seconds)
        else:
            ledger.stopped(patience)
    bias = ledger.bias(taken, {0: len(taken)})
    unbiased = sum(lengths(random.Random(3), 40000)) / 40000
    assert bias.started_mean_seconds == pytest.approx(unbiased, rel=0.1)
    assert bias.mean_ratio < 0.9
    assert bias.long_share < 0.6 * bias.started_long_share


def test_an_account_is_closed_once() -> None:
    ledger = Ledger(filtered=1.0, failed=2.0)
    ledger.stopped(4.0)
    first = ledger.close(useful=8.0, surplus=16.0)
    assert (first.filtered, first.failed, first.cancelled) == (1.0, 2.0, 4.0)
    second = ledger.close(useful=0.0, surplus=0.0)
    assert (second.filtered, second.failed, second.cancelled) == (0.0, 0.0, 0.0)


def test_nothing_started_is_no_bias() -> None:
    assert Ledger().bias([], {}).mean_ratio == 0.0


def test_a_length_beyond_all_measure_spoils_no_account() -> None:
    ledger = Ledger()
    ledger.finished(1e308)
    ledger.stopped(1e308)
    assert ledger.bias([1e308], {0: 1}).trajectories == 1
