"""Questions to Redis: their commands, and what the answers to these mean.

Questions that are asked together cost one round trip, and are answered as of one moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redis.client import Pipeline

T = TypeVar("T")


@dataclass(frozen=True)
class Question(Generic[T]):
    put: Callable[[Pipeline], object]
    """Puts the commands on the pipeline."""
    read: Callable[[list[Any]], T]
    """Makes one answer of the answers to the commands, which are in their order."""
