"""Tries are spread out, rarer and rarer, and end at their deadline."""

import itertools
import random

from rollyard.backoff import Backoff


def test_a_thousand_peers_that_lost_the_same_server_do_not_come_back_together() -> None:
    firsts = [next(Backoff(first_seconds=1.0).delays()) for _ in range(1000)]
    for tenth in range(10):
        crowd = sum(tenth <= 10 * delay < tenth + 1 for delay in firsts)
        assert 40 <= crowd <= 200


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first_seconds=1.0, max_seconds=4.0)
    samples = [list(itertools.islice(backoff.delays(), 5)) for _ in range(500)]
    longest = [max(each) for each in zip(*samples, strict=True)]
    for seen, bound in zip(longest, (1.0, 2.0, 4.0, 4.0, 4.0), strict=True):
        assert 0.9 * bound < seen <= bound


def test_no_delay_goes_beyond_the_total() -> None:
    assert all(delay <= 0.5 for delay in itertools.islice(Backoff(total_seconds=0.5).delays(), 9))


def test_trainers_with_the_same_seed_spread_out_and_keep_their_random_numbers() -> None:
    random.seed(5)
    expected = random.random()
    firsts = set()
    for _ in range(10):
        random.seed(5)
        firsts.add(next(Backoff(first_seconds=1.0).delays()))
        assert random.random() == expected
    assert len(firsts) == 10
