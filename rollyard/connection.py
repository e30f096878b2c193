"""Calls to the orchestrator, repeated while it is away."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from rollyard.backoff import Backoff
from rollyard.errors import Unavailable
from rollyard.http import Peer

log = logging.getLogger(__name__)

T = TypeVar("T")


class Connection:
    """Safe to share between threads."""

    def __init__(self, peer: Peer, patience_seconds: float) -> None:
        self._peer = peer
        self._patience_seconds = patience_seconds

    def call(self, work: Callable[[Peer], T]) -> T:
        """`work`, repeated while the orchestrator is away. All of its calls may be repeated."""
        patience = Backoff(longest_seconds=2.0, total_seconds=self._patience_seconds)
        delays = patience.delays()
        while True:
            try:
                return work(self._peer)
            except Unavailable as error:
                delay = next(delays, None)
                if delay is None:
                    raise
                log.info("trying again in %.1f s: %s", delay, error)
                time.sleep(delay)
