"""The watch over totals that the kernel does not hold by itself: one thread looks at every sandbox
in which something runs, adds up what it uses, and has it stopped with the reason.

What a sandbox uses between two looks is not seen. Where there are control groups, only the number
of its files is left to watch.
"""

import contextlib
import os
import threading
from collections.abc import Collection
from typing import Protocol

import psutil

from agent_server.sandbox.totals import SandboxTotals

_WRITABLE = (".", "workspace", "tmp", "dev/shm")
_LOOK_SECONDS = 0.2
_JOIN_SECONDS = 2.0


class Watched(Protocol):
    """A sandbox, as the watcher sees it."""

    def processes(self) -> Collection[int]:
        """The processes that were started for it and run, whose children are its commands; none if
        nothing runs."""
        ...

    def filled(self) -> tuple[int, int]:
        """Number of its files, and of their bytes."""
        ...

    def overrun(self, reason: str) -> None:
        """Stop what runs; its results say the reason."""
        ...


class Watcher:
    """Owns the thread, and the list of what it looks at."""

    def __init__(self, totals: SandboxTotals, *, counts_processes: bool) -> None:
        """`counts_processes` where no control groups do."""
        self._totals = totals
        self._counts_processes = counts_processes
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def watch(self, sandbox: Watched) -> None:
        with self._lock:
            self._watched.add(sandbox)

    def forget(self, sandbox: Watched) -> None:
        with self._lock:
            self._watched.discard(sandbox)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            with self._lock:
                watched = tuple(self._watched)
            for sandbox in watched:
                if reason := self._excess(sandbox):
                    sandbox.overrun(reason)

    def _excess(self, sandbox: Watched) -> str:
        """The total that the sandbox exceeds, as a sentence; empty if it exceeds none."""
        processes = sandbox.processes()
        if not processes:
            return ""
        files, written = sandbox.filled()
        if files > self._totals.inodes:
            return self._totals.too_many_files
        if self._counts_processes:
            count, used = _running(processes)
            if count > self._totals.processes:
                return self._totals.too_many_processes
            if used + written > self._totals.memory_bytes:
                return self._totals.too_much_memory
        return ""


def filled(root: int) -> tuple[int, int]:
    """Number of files, and of their bytes, in all that a sandbox with this root may write to."""
    files = written = 0
    for name in _WRITABLE:
        with contextlib.suppress(OSError):
            directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
            try:
                found = os.fstatvfs(directory)
            finally:
                os.close(directory)
            files += found.f_files - found.f_ffree
            written += (found.f_blocks - found.f_bfree) * found.f_frsize
    return files, written


def _running(processes: Collection[int]) -> tuple[int, int]:
    """Number of threads below these processes, and the memory that they do not share with files."""
    threads = used = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory = child.memory_info()
                    threads += child.num_threads()
                    used += memory.rss - memory.shared
    return threads, used
