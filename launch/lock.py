"""The lock of a yard's directory: two yards never share the queues' data.

It is held by the launcher, whose process id the file holds, and ends with it however that ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rollyard.errors import LaunchError

LOCK = "lock"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for one yard. Raises `LaunchError` when another one holds it."""
    with _lock_file(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise LaunchError(
                f"another rollyard (pid {lock.read().strip()}) runs in {directory}",
                fix=f"stop it with `rollyard down --directory {directory}`, or give this one a "
                "--directory of its own",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _lock_file(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / LOCK).open("a+")
    except OSError as error:
        raise LaunchError(
            f"cannot write in the directory {directory}: {error.strerror}",
            fix="name another one with --directory (of `rollyard demo`: --output)",
        ) from error


def holder(directory: Path) -> int | None:
    """The process that holds the directory; None if none does."""
    nowhere = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with nowhere, (directory / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            written = lock.read().strip()
            return int(written) if written.isdecimal() else None
    return None
