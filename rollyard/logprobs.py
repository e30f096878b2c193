"""Which numbers are logprobs."""

import math
from collections.abc import Sequence

NO_LOGPROB = -9999.0
"""What vLLM sends in the place of a logprob that is not a finite number."""
MAX_AT_ONCE = 65_536
"""So many, and then other threads may have their turn: a trajectory can have millions."""


def are_logprobs(values: Sequence[float]) -> bool:
    """Whether all are finite numbers, and none is what vLLM sends in the place of another."""
    starts = range(0, len(values), MAX_AT_ONCE)
    return all(_are_logprobs(values[start : start + MAX_AT_ONCE]) for start in starts)


def _are_logprobs(values: Sequence[float]) -> bool:
    # A sum with NaN or infinity in it is not finite, and takes a fifth of a look at each.
    return math.isfinite(sum(values)) and min(values) > NO_LOGPROB
