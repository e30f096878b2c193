"""The processes of a reward service, seen from outside."""

import psutil

from tests.processes import hosted_processes, lives


def processes(root: psutil.Process | None = None) -> list[psutil.Process]:
    """Everything that descends from this process, or from `root`, and has not ended."""
    return list(filter(lives, (root or psutil.Process()).children(recursive=True)))


def deepest_process() -> psutil.Process:
    """The hosted one with the most ancestors: the work horse of the one task under way."""
    return max(hosted_processes(), key=lambda process: len(process.parents()))


def worker_at_work() -> psutil.Process:
    worker = deepest_process().parent()
    assert worker is not None
    return worker
