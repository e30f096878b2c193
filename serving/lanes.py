"""Lanes: separate threads for each kind of caller, so that no kind can starve another.

Requests of one lane are answered in the order in which they came.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

from rollyard.tokens import Role

T = TypeVar("T")

PROBE_THREADS = 8
"""Threads of each of the lanes `PROBES` and `LOOKS`."""


MAX_CALLS = 1024
"""Threads of each of the lanes `CALLS` and `TURNS`: each holds some 65 kB."""
MAX_BYTES_OF_TURNS = 512 * 2**20
"""Maximum memory for the bodies of `TURNS`, which are needed until they are answered: 1,024 prompts
of 64k tokens."""


class Lane(StrEnum):
    """Kind of caller."""

    WORKERS = "workers"
    """Services: registrations, heartbeats, Jobs, Results. If these are missed, Jobs are lost."""
    PROBES = "probes"
    """Liveness probes, whose answers wait for nothing."""
    LOOKS = "looks"
    """Readiness probes, for which the service may have to wait for one that does not answer."""
    CALLS = "calls"
    """Calls that are answered once a whole Job has ended."""
    TURNS = "turns"
    """Turns, which an LLM server takes seconds or minutes to answer."""
    CALLERS = "callers"
    """Trainers, people, and callers without access, which are only refused."""


def lane_of(roles: Collection[Role], *, refuses: bool = False) -> Lane:
    """The lane of a route that is open to `roles`, or to everyone if there are none. A probe that
    may refuse checks other services, and so may have to wait."""
    if not roles:
        return Lane.LOOKS if refuses else Lane.PROBES
    return Lane.WORKERS if Role.WORKER in roles else Lane.CALLERS


class Lanes:
    """A pool of threads for each lane; a thread starts when it is first needed."""

    def __init__(self, threads: int) -> None:
        sizes = {
            Lane.PROBES: PROBE_THREADS,
            Lane.LOOKS: PROBE_THREADS,
            Lane.CALLS: MAX_CALLS,
            Lane.TURNS: MAX_CALLS,
        }
        self._pools = {
            lane: ThreadPoolExecutor(sizes.get(lane, threads), thread_name_prefix=lane)
            for lane in Lane
        }

    def submit(self, lane: Lane, work: Callable[..., T], *arguments: object) -> "Future[T]":
        return self._pools[lane].submit(work, *arguments)

    def shutdown(self, wait: bool) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=wait)
