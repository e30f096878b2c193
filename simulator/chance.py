"""Random numbers without state: the same key always gives the same number.

Policies that run the same trajectories in different orders are thus compared on the same draws.
"""

import struct
from hashlib import blake2b
from statistics import NormalDist

_TWO = struct.Struct("<QQ")
_STEP = 2.0**-53

normal = NormalDist().inv_cdf
"""The quantile of the standard normal distribution at a number in (0, 1)."""


def uniforms(*key: object) -> tuple[float, float]:
    """Two independent uniform numbers in the open interval (0, 1), hashed from `key`."""
    digest = blake2b(repr(key).encode(), digest_size=16).digest()
    first, second = _TWO.unpack(digest)
    # 53 bits are what a double holds exactly; the half keeps 0 and 1 out.
    return ((first >> 11) + 0.5) * _STEP, ((second >> 11) + 0.5) * _STEP


def shuffled(count: int, *key: object) -> list[int]:
    """A seeded permutation of range(count)."""
    return sorted(range(count), key=lambda index: uniforms(*key, index))
