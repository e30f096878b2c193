"""The processes we started: none outlives us, and none dies unnoticed.

- Each runs in a session of its own, so that Ctrl-C reaches us alone and we stop them in order: the
  highest level first, so that what a process talks to outlives it.
- Each gets SIGTERM when we die, however we die; orphans of theirs become our children.
- `stop_all` returns when no descendant is left.
"""

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from launch.logs import last_line, make_room
from rollyard.errors import LaunchError

STOP_SECONDS = 10.0
"""For the processes of one level, from SIGTERM until the next level is stopped."""
REAP_SECONDS = 30.0
"""Between two looks for dead orphans."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)


class Started(msgspec.Struct, frozen=True):
    """One running process."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path | None
    """Where its output goes; None for one that shares our terminal."""
    level: int = 0
    """It stops once nothing of a higher level is left."""


class Processes:
    """Owns every process it started, with their descendants and orphans; children that were
    there before are left alone. Use as a context manager; call from the main thread."""

    def __init__(self) -> None:
        self._started: list[Started] = []
        self._others = frozenset(psutil.Process().children())
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def start(
        self, name: str, command: Sequence[str], log: Path | None = None, *, level: int = 0
    ) -> Started:
        """Start `command`; its output goes to `log`, and what was in it before to `log`.1."""
        output = None
        with contextlib.ExitStack() as files:
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                make_room(log)
                output = files.enter_context(log.open("wb"))
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise LaunchError(f"cannot start {name}: {command[0]}: {error.strerror}") from error
        started = Started(name, process, log, level)
        self._started.append(started)
        return started

    def check(self) -> None:
        """Raise `LaunchError` if any process has ended."""
        for started in self._started:
            if started.process.poll() is not None:
                raise LaunchError(obituary(started))

    def seconds_computed(self, name: str) -> float:
        """What the processor has worked for the process `name` and its descendants, so far."""
        seconds = 0.0
        for started in self._started:
            if started.name == name:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process = psutil.Process(started.process.pid)
                    for each in (process, *process.children(recursive=True)):
                        seconds += sum(each.cpu_times()[:2])
        return seconds

    def wait_for_first_exit(self, seconds: float | None = None) -> Started | None:
        """The process that ends first; None after `seconds`. Wakes at once."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._sleep_until_an_exit(min(left, REAP_SECONDS))
            self._reap_adopted()
            for started in self._started:
                if started.process.poll() is not None:
                    return started
            if time.monotonic() >= deadline:
                return None

    def _sleep_until_an_exit(self, seconds: float) -> None:
        with contextlib.ExitStack() as files:
            poll = select.poll()
            for started in self._started:
                if started.process.poll() is not None:
                    return
                descriptor = os.pidfd_open(started.process.pid)
                files.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
            poll.poll(seconds * 1000)

    def _reap_adopted(self) -> None:
        """Orphans that became our children would stay zombies for as long as we live."""
        own = {started.process.pid for started in self._started}
        for child in psutil.Process().children():
            if child.pid not in own and child not in self._others:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    def stop_all(self) -> None:
        """SIGTERM to one level after the other, then SIGKILL for whatever is left."""
        signals = (signal.SIGINT, signal.SIGTERM)  # the stop is not to be cut short
        previous = [signal.signal(number, signal.SIG_IGN) for number in signals]
        try:
            for level in sorted({started.level for started in self._started}, reverse=True):
                self._terminate([each for each in self._started if each.level == level])
            self._kill_the_rest()
        finally:
            self._started.clear()
            for number, handler in zip(signals, previous, strict=True):
                signal.signal(number, handler)

    def _terminate(self, those: Sequence[Started]) -> None:
        for started in those:
            with contextlib.suppress(ProcessLookupError):
                started.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for started in those:
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.process.wait(max(0.0, deadline - time.monotonic()))

    def _descendants(self) -> list[psutil.Process]:
        found = []
        for child in psutil.Process().children():
            if child not in self._others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += [child, *child.children(recursive=True)]
        return found

    def _kill_the_rest(self) -> None:
        """Until none is left: a dying parent hands us its children."""
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            left = self._descendants()
            if not left:
                break
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
        for started in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.process.wait(0)


def obituary(started: Started) -> str:
    """One sentence: what ended, how, why if it could say so, and where its log is."""
    code = started.process.returncode
    if code < 0:  # whatever it said last has nothing to do with it
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        last_words = last_line(started.log) if started.log else ""
        how = f"ended with code {code}" + (f" ({last_words})" if last_words else "")
    where = f"; its log is {started.log}" if started.log else ""
    return f"{started.name} {how}{where}"


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
