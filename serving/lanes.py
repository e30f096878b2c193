"""Threads for requests, kept apart by who asks: no kind of caller can take another kind's.

Requests of one lane wait for its threads in the order in which they came.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

from rollyard.tokens import Role

T = TypeVar("T")

PROBE_THREADS = 8
"""Of each kind."""


class Lane(StrEnum):
    """Who asks."""

    WORKERS = "workers"
    """Services: registrations, heartbeats, Jobs, Results. Where these are missed, Jobs are lost."""
    PROBES = "probes"
    """Whoever watches whether the service is alive. Nothing is waited for here."""
    LOOKS = "looks"
    """Whoever watches whether it is ready, for which it may have to ask what does not answer."""
    CALLERS = "callers"
    """Trainers, people, and strangers, who are only told that they are."""


def lane_of(roles: Collection[Role], *, refuses: bool = False) -> Lane:
    """The lane of a route that is open to `roles`, or to everyone if there are none. A probe that
    `refuses` has looked at something."""
    if not roles:
        return Lane.LOOKS if refuses else Lane.PROBES
    return Lane.WORKERS if Role.WORKER in roles else Lane.CALLERS


class Lanes:
    """A pool of threads for each lane; a thread starts when it is first needed."""

    def __init__(self, threads: int) -> None:
        probes = (Lane.PROBES, Lane.LOOKS)
        self._pools = {
            lane: ThreadPoolExecutor(
                PROBE_THREADS if lane in probes else threads, thread_name_prefix=lane
            )
            for lane in Lane
        }

    def submit(self, lane: Lane, work: Callable[..., T], *arguments: object) -> "Future[T]":
        return self._pools[lane].submit(work, *arguments)

    def shutdown(self, wait: bool) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=wait)
