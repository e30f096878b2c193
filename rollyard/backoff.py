"""Exponential backoff with full jitter, bounded by a deadline.

Each delay is drawn from its whole range, so that peers that lost the same server return spread out.
"""

import random
import time
from collections.abc import Iterator

import msgspec

# Python's own generator is the trainer's, who seeds it alike in all processes to repeat a training.
_jitter = random.Random()


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    first_seconds: float = 0.1
    """Upper bound of the first delay; it doubles with each further one."""
    max_seconds: float = 5.0
    """Upper bound of every delay."""
    total_seconds: float = float("inf")
    """Time from the first attempt to the last retry."""

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each retry, until `total_seconds` have passed."""
        deadline = time.monotonic() + self.total_seconds
        delay = self.first_seconds
        while (left := deadline - time.monotonic()) > 0:
            yield min(left, _jitter.uniform(0.0, delay))
            delay = min(self.max_seconds, delay * 2)
