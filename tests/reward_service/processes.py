"""The processes of a reward service, seen from outside."""

from contextlib import suppress

import psutil

from tests.zygotes import hosted_processes


def processes(root: psutil.Process | None = None) -> list[psutil.Process]:
    """Everything that descends from this process, or from `root`, and has not ended."""
    return list(filter(_lives, (root or psutil.Process()).children(recursive=True)))


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def deepest_process() -> psutil.Process:
    """The hosted one with the most ancestors: the work horse of the one task under way."""
    return max(hosted_processes(), key=lambda process: len(process.parents()))


def worker_at_work() -> psutil.Process:
    worker = deepest_process().parent()
    assert worker is not None
    return worker
