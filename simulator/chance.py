"""Chance without a state: the same question has the same answer, whoever asks it and when.

Policies that run the same trajectories in different orders are thus compared on the same draws.
"""

import struct
from hashlib import blake2b
from statistics import NormalDist

_TWO = struct.Struct("<QQ")
_STEP = 2.0**-53
_normal = NormalDist().inv_cdf


def uniforms(*question: object) -> tuple[float, float]:
    """Two independent numbers between 0 and 1, neither included."""
    digest = blake2b(repr(question).encode(), digest_size=16).digest()
    first, second = _TWO.unpack(digest)
    return ((first >> 11) + 0.5) * _STEP, ((second >> 11) + 0.5) * _STEP


def normal(uniform: float) -> float:
    """The standard normal number that so much of the distribution lies below."""
    return _normal(uniform)


def shuffled(count: int, *question: object) -> list[int]:
    """0..count, in an order of chance."""
    return sorted(range(count), key=lambda index: uniforms(*question, index))
