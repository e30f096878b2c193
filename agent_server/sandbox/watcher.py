"""The watch over totals that the kernel does not hold by itself: one thread looks at the sandboxes
in which something runs, adds up what each uses, and has it stopped with the reason.

What a sandbox uses between two looks is not seen. Where there are control groups, only the number
of its files is left to watch.
"""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Collection
from typing import Protocol
from weakref import WeakKeyDictionary

import structlog

from agent_server.sandbox.process_table import ProcessTable
from agent_server.sandbox.totals import SandboxTotals

_LOOK_SECONDS = 0.2
_IDLE_LOOKS = 10
"""Looks at sandboxes with a command under way to one look at all: the others have at most what they
left in the background."""
_REST = 20
"""Seconds without looking to one second of looking."""
_JOIN_SECONDS = 2.0


log = structlog.get_logger()


class Watched(Protocol):
    """A sandbox, as the watcher sees it."""

    @property
    def busy(self) -> bool:
        """Whether a command is under way."""
        ...

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
        self._files: WeakKeyDictionary[Watched, int] = WeakKeyDictionary()
        """Number of files that each had at the last look."""
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
        seconds = _LOOK_SECONDS
        for look in itertools.count():
            if self._ended.wait(seconds):
                return
            began = time.monotonic()
            try:
                self._look(of_all=look % _IDLE_LOOKS == 0)
            except Exception as error:  # without this thread no total would be kept
                log.error("look_failed", reason=f"{type(error).__name__}: {error}")
            # On a machine with many processes a look takes long, and must not become all we do.
            seconds = max(_LOOK_SECONDS, _REST * (time.monotonic() - began))

    def _look(self, *, of_all: bool) -> None:
        """Look at the sandboxes with a command under way, or at those with anything started."""
        with self._lock:
            known = tuple(self._watched)
        # Asked without the lock: what a sandbox answers may wait for one that is being closed.
        watched = [sandbox for sandbox in known if of_all or sandbox.busy]
        table = ProcessTable() if watched and self._counts_processes else None
        for sandbox in watched:
            if reason := self._excess(sandbox, table):
                log.info("sandbox_overrun", reason=reason)
                sandbox.overrun(reason)

    def _excess(self, sandbox: Watched, table: ProcessTable | None) -> str:
        """The total that the sandbox exceeds, as a sentence; empty if it exceeds none."""
        if not (processes := sandbox.processes()):
            return ""
        files, written = sandbox.filled()
        before, self._files[sandbox] = self._files.get(sandbox, 0), files
        # One that has too many already may remove some.
        if files > max(self._totals.inodes, before):
            return self._totals.too_many_files
        if table is not None:
            threads, used = table.below(processes)
            if threads > self._totals.processes:
                return self._totals.too_many_processes
            if used + written > self._totals.memory_bytes:
                return self._totals.too_much_memory
        return ""


def filled(root: int, directories: Collection[str]) -> tuple[int, int]:
    """Number of files, and of their bytes, in these directories below a root, each of which is a
    file system in memory."""
    files = written = 0
    for name in directories:
        with contextlib.suppress(OSError):
            directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
            try:
                found = os.fstatvfs(directory)
            finally:
                os.close(directory)
            files += found.f_files - found.f_ffree
            written += (found.f_blocks - found.f_bfree) * found.f_frsize
    return files, written
