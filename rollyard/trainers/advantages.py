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
    centred = _centred(rewards, groups)
    farthest = _farthest(centred, groups)
    spread = farthest > 0
    # In units of the farthest: the squares of huge or tiny distances are none that a float holds.
    shares = np.divide(centred, farthest, out=np.zeros_like(centred), where=spread)
    added = np.divide(epsilon, farthest, out=np.zeros_like(centred), where=spread)
    divisors = np.maximum(_members(groups) - correction, 1)
    deviations = np.sqrt(_sums(shares**2, groups) / divisors) + added
    found: Numbers = np.divide(shares, deviations, out=np.zeros_like(centred), where=spread)
    return found


def dr_grpo(rewards: Numbers, groups: GroupNumbers) -> Numbers:
    """How far a reward lies from its Group's mean (Dr. GRPO, arXiv 2503.20783)."""
    return _centred(rewards, groups)


def rloo(rewards: Numbers, groups: GroupNumbers) -> Numbers:
    """How far a reward lies from the mean of the Group's others (RLOO, arXiv 2402.14740).
    Zero for a trajectory without others."""
    members = _members(groups)
    return _centred(rewards, groups) * (members / np.maximum(members - 1, 1))


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


def _members(groups: GroupNumbers) -> Numbers:
    """The number of its Group's members, for each trajectory."""
    return _sums(np.ones(len(groups)), groups)


def _centred(rewards: Numbers, groups: GroupNumbers) -> Numbers:
    """How far each reward lies from its Group's mean: exactly 0 where all are equal. From the
    lowest on, which loses nothing of rewards that are large beside their differences."""
    lowest = np.full(int(groups.max(initial=-1)) + 1, np.inf)
    np.minimum.at(lowest, groups, rewards)
    above = rewards - lowest[groups]
    centred: Numbers = above - _sums(above, groups) / _members(groups)
    return centred


def _farthest(centred: Numbers, groups: GroupNumbers) -> Numbers:
    """The largest distance in its Group, for each trajectory."""
    largest = np.zeros(int(groups.max(initial=-1)) + 1)
    np.maximum.at(largest, groups, np.abs(centred))
    return largest[groups]
