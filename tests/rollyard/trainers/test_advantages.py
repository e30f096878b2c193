"""Advantages against the formulas as their papers write them, one Group at a time."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollyard.trainers.advantages import dr_grpo, grpo, overlong_penalty, rloo

Grouped = list[list[float]]
GROUPS = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


def flat(groups: Grouped) -> tuple[np.ndarray, np.ndarray]:
    numbers = [number for number, group in enumerate(groups) for _ in group]
    return np.array([r for group in groups for r in group]), np.array(numbers, dtype=np.int64)


@given(GROUPS)
def test_grpos_are_deviations_from_the_groups_mean(groups: Grouped) -> None:
    expected = [
        (reward - statistics.fmean(group)) / statistics.pstdev(group) if len(set(group)) > 1 else 0
        for group in groups
        for reward in group
    ]
    assert grpo(*flat(groups)).tolist() == pytest.approx(expected)


@given(GROUPS)
def test_grpos_are_those_of_trl_with_its_correction_and_epsilon(groups: Grouped) -> None:
    expected = [
        (reward - statistics.fmean(group)) / (statistics.stdev(group) + 1e-4)
        if len(set(group)) > 1
        else 0
        for group in groups
        for reward in group
    ]
    found = grpo(*flat(groups), correction=1, epsilon=1e-4)
    assert found.tolist() == pytest.approx(expected)


@given(GROUPS)
def test_dr_grpos_are_distances_from_the_groups_mean(groups: Grouped) -> None:
    expected = [reward - statistics.fmean(group) for group in groups for reward in group]
    assert dr_grpo(*flat(groups)).tolist() == pytest.approx(expected)


@given(GROUPS)
def test_rloos_are_distances_from_the_mean_of_the_others(groups: Grouped) -> None:
    expected = []
    for group in groups:
        for member, reward in enumerate(group):
            others = group[:member] + group[member + 1 :]
            expected.append(reward - statistics.fmean(others) if others else 0.0)
    assert rloo(*flat(groups)).tolist() == pytest.approx(expected)


@given(GROUPS)
def test_each_groups_advantages_sum_to_zero(groups: Grouped) -> None:
    rewards, numbers = flat(groups)
    for advantages in (grpo(rewards, numbers), dr_grpo(rewards, numbers)):
        assert np.bincount(numbers, weights=advantages) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("advantages", [grpo, dr_grpo, rloo])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -1e9])
def test_a_group_of_equal_rewards_teaches_nothing(
    advantages: Callable[..., np.ndarray], reward: float
) -> None:
    for members in range(1, 8):
        found = advantages(*flat([[reward] * members, [0.0, 1.0]]))
        assert found.tolist()[:members] == [0.0] * members


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 2.0**52), (-1e160, 0.0), (1e-170, 0.0)])
def test_grpos_are_the_same_wherever_rewards_lie_and_however_large_they_are(
    scale: float, shift: float
) -> None:
    rewards, numbers = flat([[0.0, 1.0, 1.0], [2.0, 0.0, 5.0, 5.0, 0.0], [3.0]])
    found = grpo(rewards * scale + shift, numbers)
    assert (found * np.sign(scale)).tolist() == pytest.approx(grpo(rewards, numbers).tolist())


def test_groups_need_not_be_neighbours() -> None:
    assert dr_grpo(np.array([1.0, 5.0, 0.0]), np.array([0, 1, 0])).tolist() == [0.5, 0.0, -0.5]


def test_overlong_responses_lose_up_to_one() -> None:
    lengths = np.array([0, 80, 90, 100, 200])
    penalty = overlong_penalty(lengths, max_tokens=100, cache_tokens=20)
    assert penalty.tolist() == [0, 0, -0.5, -1, -1]
