"""What each trajectory teaches, from its Group's rewards: plain functions of published formulas.

`rewards` and `groups` are [trajectories], as `sequences.rewards` gives them; so are advantages. A
sequence has that of its trajectory: `advantages[padded.trajectories]`.
"""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
GroupNumbers = NDArray[np.int64]


def grpo(
    rewards: Numbers, groups: GroupNumbers, *, correction: int = 0, epsilon: float = 0.0
) -> Numbers:
    """GRPO's, and DAPO's: how far a reward lies from its Group's mean, in standard deviations
    (arXiv 2402.03300, section 4.1.2; arXiv 2503.14476, section 3). Zero where all are equal.

    The deviation is divided by members - `correction`, and `epsilon` is added to it. The papers say
    neither; TRL takes 1 and 1e-4, verl 1 and 1e-6.
    """
    centred = rewards - _means(rewards, groups)
    members = _sums(np.ones_like(rewards), groups)
    squares = _sums(centred**2, groups)
    deviations = np.sqrt(squares / np.maximum(members - correction, 1)) + epsilon
    spread = _spread(rewards, groups)
    return np.divide(centred, deviations, out=np.zeros_like(centred), where=spread)


def dr_grpo(rewards: Numbers, groups: GroupNumbers) -> Numbers:
    """How far a reward lies from its Group's mean (Dr. GRPO, arXiv 2503.20783)."""
    return rewards - _means(rewards, groups)


def rloo(rewards: Numbers, groups: GroupNumbers) -> Numbers:
    """How far a reward lies from the mean of the Group's others (RLOO, arXiv 2402.14740).
    Zero for a trajectory without others."""
    others = _sums(np.ones_like(rewards), groups) - 1
    sums = _sums(rewards, groups) - rewards
    means: Numbers = np.divide(sums, others, out=rewards.copy(), where=others > 0)
    return rewards - means


def overlong_penalty(lengths: NDArray[np.int64], *, max_tokens: int, cache_tokens: int) -> Numbers:
    """DAPO's soft penalty, to be added to rewards: 0 up to `max_tokens` - `cache_tokens`, falling
    to -1 at `max_tokens` (arXiv 2503.14476, section 3.4). `lengths` are of responses,
    [trajectories]."""
    over = (lengths - (max_tokens - cache_tokens)) / cache_tokens
    penalty: Numbers = 0.0 - np.clip(over, 0.0, 1.0)
    return penalty


def _sums(values: Numbers, groups: GroupNumbers) -> Numbers:
    """The sum over its Group, for each trajectory."""
    sums: Numbers = np.bincount(groups, weights=values).astype(np.float64)[groups]
    return sums


def _means(values: Numbers, groups: GroupNumbers) -> Numbers:
    return _sums(values, groups) / _sums(np.ones_like(values), groups)


def _spread(values: Numbers, groups: GroupNumbers) -> NDArray[np.bool_]:
    """Whether the values of its Group differ, for each trajectory: not by the deviation, which
    rounding makes non-zero."""
    count = int(groups.max(initial=-1)) + 1
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, groups, values)
    np.maximum.at(highest, groups, values)
    spread: NDArray[np.bool_] = (lowest < highest)[groups]
    return spread
