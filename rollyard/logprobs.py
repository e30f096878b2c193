"""Which numbers are logprobs."""

import math
from collections.abc import Sequence

NO_LOGPROB = -9999.0
"""What vLLM sends in the place of a logprob that is not a finite number."""


def are_logprobs(values: Sequence[float]) -> bool:
    """Whether all are finite numbers, and none is what vLLM sends in the place of another."""
    return all(map(math.isfinite, values)) and min(values, default=0.0) > NO_LOGPROB
