"""Validity of logprobs."""

import math
from collections.abc import Sequence

NO_LOGPROB = -9999.0
"""vLLM's placeholder for a logprob that is not a finite number."""
MAX_AT_ONCE = 65_536
"""Values checked without releasing the interpreter to other threads; a trajectory can have
millions."""


def are_logprobs(values: Sequence[float]) -> bool:
    """Whether all values are finite numbers, and none is vLLM's placeholder."""
    starts = range(0, len(values), MAX_AT_ONCE)
    return all(_are_logprobs(values[start : start + MAX_AT_ONCE]) for start in starts)


def _are_logprobs(values: Sequence[float]) -> bool:
    # A sum with NaN or infinity is not finite; it takes a fifth of the time of checking each value.
    return math.isfinite(sum(values)) and min(values) > NO_LOGPROB
