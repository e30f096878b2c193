"""Computations on what a policy wrote, each in a forked process with limits of its own.

- Nothing of a computation is left when `news_from` returns.
- A computation that is beyond its CPU time or memory ends, and its caller sees what it told before:
  that is the doing of what it computed on. One that had no CPU time is this machine's failure.
"""

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable

from rollyard.errors import Unavailable

Tell = Callable[[bytes], None]

CPU_SECONDS = 3
MEMORY_BYTES = 2 << 30
"""Address space, that of the process that forks included."""
_WALL_SECONDS = 15.0
"""Less than the time that a grader has for a task."""
_CHUNK_BYTES = 4096


def news_from(work: Callable[[Tell], None]) -> bytes:
    """All that `work` told before it returned, raised, died or exceeded its limits.

    Raises `Unavailable` if it got too little of the CPU to do either.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _compute(work, writer)
    os.close(writer)
    try:
        news = _read_to_its_end(reader, time.monotonic() + _WALL_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    if news is None:
        raise Unavailable(
            f"a computation of at most {CPU_SECONDS} s of CPU was not over after "
            f"{_WALL_SECONDS:g} s",
            fix="this machine is overloaded: give it less to do",
        )
    return news


def _compute(work: Callable[[Tell], None], writer: int) -> None:
    """Do the work in the forked process, which ends here."""
    code = 1
    try:
        _limit(resource.RLIMIT_CPU, CPU_SECONDS)
        _limit(resource.RLIMIT_AS, MEMORY_BYTES)
        _limit(resource.RLIMIT_CORE, 0)
        work(lambda news: _write(writer, news))
        code = 0
    finally:
        os._exit(
            code
        )  # nothing of the process that forked may run here, not even its exit handlers


def _limit(what: int, value: int) -> None:
    _, most = resource.getrlimit(what)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (value, value))


def _write(writer: int, news: bytes) -> None:
    os.write(writer, news)


def _read_to_its_end(reader: int, deadline: float) -> bytes | None:
    """What is written until the last writer is gone; None if the deadline comes first."""
    news = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reader, _CHUNK_BYTES)
        if not chunk:
            return news
        news += chunk
    return None
