"""Prediction of which Groups will be effective, from their members and their row's history.

- The last member of a Group may still differ from all others, so that no prediction is certain:
  all of this is opt-in, and every Group that is skipped or cut short is counted.
- Pass rates are on a grid. Their prior over dataset rows is fitted to the first Group of every
  row, by expectation-maximisation; later Groups were selected, and would bias it.
- A row's history decays, so that an improving policy is tried on the row again.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import mul

from orchestrator.events import Tried
from rollyard.messages import Criterion, RunSettings

_GRID = (0.0, 0.005, 0.02, *(step / 20 for step in range(1, 20)), 0.98, 0.995, 1.0)
"""Grid of pass rates. It is finer at both ends: rows never solved, or always, are common."""
_ROUNDS = 30
"""Iterations of expectation-maximisation."""
_PSEUDO_GROUPS = 4.0
"""Pseudo-count, in Groups, of the uniform prior: it keeps rows from being skipped early."""
_MIN_TRIED = 3.0
"""Decayed members that a row's history must have before the row may be skipped."""
_PRICE = 2.0
"""Cost per effective Group, relative to the average row's, above which a row is skipped."""
_EXPLORED = 10
"""One in this many Prompts that could be skipped is begun all the same, to learn of changes."""

Prior = tuple[float, ...]
"""Probability of each pass rate of `_GRID`; they sum to 1."""


class Odds:
    """Predictions from the statistics of a Run's dataset."""

    def __init__(self, settings: RunSettings, pass_counts: Mapping[str, int]) -> None:
        self._size = settings.group_size
        self._criterion = settings.criterion
        self._forgetting = settings.prediction.forgetting
        self._prior = _fitted(tuple(sorted(pass_counts.items())))
        self.effective = self._average(self._prior, 0, 0, self._size)
        """Expected share of effective Groups, over all rows."""

    def faded(self, tried: Tried | None, batches: int) -> tuple[float, float]:
        """Solved and failed members in the row's history, decayed until `batches` were
        delivered."""
        if tried is None:
            return 0.0, 0.0
        kept = (1.0 - self._forgetting) ** (batches - tried.batches)
        return tried.solved * kept, tried.failed * kept

    def of(self, past: tuple[float, float], solved: int, failed: int) -> float:
        """Probability that a Group with these finished members and this history of its row will
        be effective."""
        posterior = _reweighted(self._prior, past[0] + solved, past[1] + failed)
        return self._average(posterior, solved, failed, self._size - solved - failed)

    def skips(self, group_id: str, past: tuple[float, float]) -> bool:
        """Whether to skip a Prompt of a row with this history."""
        if sum(past) < _MIN_TRIED or self.of(past, 0, 0) * _PRICE >= self.effective:
            return False
        # A hash in the place of a random number keeps the sampler deterministic.
        return zlib.crc32(group_id.encode()) % _EXPLORED != 0

    def goes_on(self, past: tuple[float, float], solved: int, failed: int) -> bool:
        """Whether the rest of a Group costs less, per effective Group, than a new one."""
        rest = self._size - solved - failed
        return rest * self.effective <= self._size * self.of(past, solved, failed)

    def _average(self, weights: Prior, solved: int, failed: int, rest: int) -> float:
        return sum(
            weight * self._given(rate, solved, failed, rest)
            for weight, rate in zip(weights, _GRID, strict=True)
            if weight
        )

    def _given(self, rate: float, solved: int, failed: int, rest: int) -> float:
        """Probability of an effective Group at this pass rate, with `rest` members to come."""
        match self._criterion:
            case Criterion.COMPLETE:
                return 1.0
            case Criterion.ANY_SOLVED:
                return 1.0 if solved else 1.0 - (1.0 - rate) ** rest
            case _:  # some, but not all; rewards that are neither are rare enough
                if solved and failed:
                    return 1.0
                all_fail = 0.0 if solved else (1.0 - rate) ** rest
                all_pass = 0.0 if failed else rate**rest
                return 1.0 - all_fail - all_pass


@lru_cache(maxsize=64)  # the sampler asks at every event, and the counts change with few of them
def _fitted(pass_counts: tuple[tuple[str, int], ...]) -> Prior:
    """The distribution of pass rates under which the observed pass counts are most likely."""
    seen = [(*map(int, key.split("/")), count) for key, count in pass_counts]
    groups = sum(count for *_, count in seen)
    even = _PSEUDO_GROUPS / len(_GRID)
    prior: Prior = (1.0 / len(_GRID),) * len(_GRID)
    likelihoods = [(_likelihood(solved, of - solved), count) for solved, of, count in seen]
    for _ in range(_ROUNDS if seen else 0):
        expected = [even] * len(_GRID)
        # Expectation: the posterior of each count; maximisation: their mean is the new prior.
        for likelihood, count in likelihoods:
            posterior = list(map(mul, prior, likelihood))
            share = count / sum(posterior)
            expected = [e + share * weight for e, weight in zip(expected, posterior, strict=True)]
        prior = tuple(weight / (groups + _PSEUDO_GROUPS) for weight in expected)
    return prior


def _likelihood(solved: float, failed: float) -> list[float]:
    """Likelihood of each pass rate relative to the largest; absolute values would underflow."""
    logs = [_times_log(solved, rate) + _times_log(failed, 1.0 - rate) for rate in _GRID]
    most = max(logs)
    return [math.exp(each - most) for each in logs]


def _times_log(count: float, chance: float) -> float:
    """The logarithm of `chance ** count`."""
    if chance > 0.0:
        return count * math.log(chance)
    return -math.inf if count else 0.0


def _reweighted(prior: Sequence[float], solved: float, failed: float) -> Prior:
    """The posterior after so many solved and failed members."""
    posterior = list(map(mul, prior, _likelihood(solved, failed)))
    total = sum(posterior)  # not 0: `_PSEUDO_GROUPS` gives every pass rate some probability
    return tuple(each / total for each in posterior)
