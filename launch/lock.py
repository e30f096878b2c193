"""The lock of a deployment's directory: two deployments never share the queues' data.

- The launcher holds it, and the kernel releases it when the launcher ends, even by kill -9.
- The kernel names its holder, so that a stale process id is never reported, and asking takes no
  lock itself.
- It is a POSIX lock of the process: closing any descriptor of the file releases it.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rollyard.errors import LaunchError

LOCK = "lock"

_QUESTION = struct.Struct("hhqqi0q")
"""The kernel's `struct flock` on 64-bit Linux: type, whence, start, length, process id."""


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """A block in which this process holds the directory. Raises `LaunchError` if another one
    does."""
    with _lock_file(directory) as lock:
        while not _taken(lock):
            if (other := _holder(lock)) is not None:
                raise LaunchError(
                    f"another rollyard (pid {other}) runs in {directory}",
                    fix=f"stop it with `rollyard down --directory {directory}`, or give this one a "
                    "--directory of its own",
                )
        yield


def holder(directory: Path) -> int | None:
    """Id of the process that holds the directory; None if none does, or if this one does."""
    nowhere = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with nowhere, (directory / LOCK).open() as lock:
        return _holder(lock)
    return None


def _lock_file(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / LOCK).open("a")
    except OSError as error:
        raise LaunchError(
            f"cannot write in the directory {directory}: {error.strerror}",
            fix="name another one with --directory (of `rollyard demo`: --output)",
        ) from error


def _taken(lock: TextIO) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, depending on the system
        return False
    return True


def _holder(lock: TextIO) -> int | None:
    question = _QUESTION.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, *_, process = _QUESTION.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else process
