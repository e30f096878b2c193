"""The machine on which the figures were measured."""

import os
import platform
import tempfile
import time
from statistics import median

import msgspec
import psutil

SYNCS = 100


class Machine(msgspec.Struct, frozen=True):
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load_before: tuple[float, ...]
    """Load averages before the first measurement, which are those of other processes."""
    fsync_ms: float
    """Median time until a small write is on disk, which durable queues wait for."""


def this_machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        load_before=tuple(round(load, 2) for load in os.getloadavg()),
        fsync_ms=round(_fsync_seconds() * 1e3, 3),
    )


def _fsync_seconds() -> float:
    seconds = []
    with tempfile.TemporaryFile(prefix="rollyard-bench-", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 512)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return median(seconds)
