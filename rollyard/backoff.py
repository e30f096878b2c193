"""How long to wait between tries: doubling, and bounded by a deadline.

A wait is drawn from its whole range, so that peers which lost the same server come back spread out.
"""

import random
import time
from collections.abc import Iterator

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    first_seconds: float = 0.1
    max_seconds: float = 5.0
    total_seconds: float = float("inf")

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each next try, until the total has passed since the first."""
        deadline = time.monotonic() + self.total_seconds
        delay = self.first_seconds
        while (left := deadline - time.monotonic()) > 0:
            yield min(left, random.uniform(0.0, delay))
            delay = min(self.max_seconds, delay * 2)
