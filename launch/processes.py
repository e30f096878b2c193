"""Child processes of a launcher: none outlives it, and none dies unnoticed.

- Each leads a session and a process group of its own: Ctrl-C reaches the launcher alone, and a
  process is killed together with what it started.
- `Processes` stops them in order, the highest level first, so that processes outlive those that
  call them.
- Each that `Processes` started gets SIGTERM when the launcher ends, even by kill -9; their orphans
  become children of the launcher.
- One that ended can be forgotten: what is left of its group is killed, and another may be started.
- `stop_all` returns when no descendant is left, or after `STOP_SECONDS` of killing them.
"""

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from launch.logs import last_line, make_room
from rollyard.errors import LaunchError

STOP_SECONDS = 10.0
"""Time for the processes of one level to end, before the next level gets its SIGTERM."""
REAP_SECONDS = 30.0
"""Interval between searches for dead orphans."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)


class Started(msgspec.Struct, frozen=True):
    """One running process."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path | None
    """File for its output; None if it shares our terminal."""
    level: int = 0
    """Levels are stopped from the highest down."""
    log_begins: int = 0
    """Bytes that were in the log before; earlier lives of the same part have written them."""

    @property
    def last_log_line(self) -> str:
        """The last line that this process has logged; empty if there is none."""
        return last_line(self.log, self.log_begins) if self.log else ""

    def family(self) -> list[psutil.Process]:
        """The process and all its descendants; none when it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.process.pid)
            return [process, *process.children(recursive=True)]
        return []

    def seconds_computed(self) -> float:
        """CPU seconds, so far, of the process and its living descendants."""
        seconds = 0.0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:2])
        return seconds

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, as long as any of it is left."""
        signal_group(self.process.pid, number, ended=self.process.poll() is not None)

    def kill(self) -> None:
        """End the whole group at once, as the loss of its node would."""
        self.signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End the process in its own time, then whatever is left of its group."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.kill()


def signal_group(leader: int, number: signal.Signals, *, ended: bool) -> None:
    """Signal a process group; nothing happens if none of it is left. `ended` says whether we have
    seen the end of its leader."""
    # From then on the id may be another's process, but not while members of this group live.
    if ended and psutil.pid_exists(leader):
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def module_command(module: str, *options: str) -> tuple[str, ...]:
    """The command that runs one of our modules."""
    return (sys.executable, "-m", module, *options)


def start_process(
    name: str,
    command: Sequence[str],
    log: Path | None = None,
    *,
    level: int = 0,
    piped: bool = False,
    in_child: Callable[[], None] | None = None,
) -> Started:
    """Start `command`; its output is added to `log`. It has no input, or, `piped`, one that ends
    when ours is closed. It may be called from any thread, unless
    something is to be called `in_child` before the command runs: only one thread is safe then."""
    output, log_begins = None, 0
    with contextlib.ExitStack() as files:
        if log is not None:
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = files.enter_context(log.open("ab"))
            except OSError as error:
                why = f"cannot start {name}: cannot write to {log}: {error.strerror}"
                raise LaunchError(why, fix="make room there, or let it be written") from error
            log_begins = output.tell()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=in_child,
            )
        except OSError as error:
            raise LaunchError(f"cannot start {name}: {command[0]}: {error.strerror}") from error
    return Started(name, process, log, level, log_begins)


class Processes:
    """Owns every process it started, with their descendants and orphans; children that were
    there before are left alone. Use as a context manager; call from the main thread."""

    def __init__(self) -> None:
        self._started: list[Started] = []
        self._others = frozenset(psutil.Process().children())
        # Orphans of our children become our children, not init's, so that they can be stopped.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def start(
        self, name: str, command: Sequence[str], log: Path | None = None, *, level: int = 0
    ) -> Started:
        """Start `command`; its output goes to `log`, rotated before. Raises `LaunchError`."""
        if log is not None:
            make_room(log)
        return self.start_again(name, command, log, level=level)

    def start_again(
        self,
        name: str,
        command: Sequence[str],
        log: Path | None = None,
        *,
        level: int = 0,
        piped: bool = False,
    ) -> Started:
        """Start `command`; its output is added to `log`. Raises `LaunchError`."""
        started = start_process(
            name, command, log, level=level, piped=piped, in_child=_die_with_parent
        )
        self._started.append(started)
        return started

    def forget(self, started: Started) -> None:
        """Kill whatever is left of it and of its group, and watch it no longer."""
        started.kill()
        self._started.remove(started)

    def check(self) -> None:
        """Raise `LaunchError` if any process has ended."""
        for started in self._started:
            if started.process.poll() is not None:
                raise LaunchError(describe_exit(started))

    def wait_for_first_exit(self) -> Started:
        """The first process that ends. It does not poll."""
        while True:
            if ended := self.wait_for_exits(REAP_SECONDS):
                return ended[0]

    def wait_for_exits(self, seconds: float) -> list[Started]:
        """The processes that have ended, as soon as there are any; none after `seconds`, or after
        less. It does not poll."""
        self._sleep_until_an_exit(min(seconds, REAP_SECONDS))
        self._reap_adopted()
        return [started for started in self._started if started.process.poll() is not None]

    def _sleep_until_an_exit(self, seconds: float) -> None:
        with contextlib.ExitStack() as files:
            poll = select.poll()
            for started in self._started:
                if started.process.poll() is not None:
                    return
                descriptor = os.pidfd_open(started.process.pid)
                files.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
            poll.poll(math.ceil(seconds * 1000))

    def _reap_adopted(self) -> None:
        """Reap dead orphans that became our children, which would stay zombies otherwise."""
        own = {started.process.pid for started in self._started}
        for child in psutil.Process().children():
            if child.pid not in own and child not in self._others:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    def stop_all(self) -> None:
        """Send SIGTERM to one level after the other, then SIGKILL to all that are left."""
        signals = (signal.SIGINT, signal.SIGTERM)  # ignored: a second one must not cut this short
        previous = [signal.signal(number, signal.SIG_IGN) for number in signals]
        try:
            for level in sorted({started.level for started in self._started}, reverse=True):
                self._terminate([each for each in self._started if each.level == level])
            self._kill_the_rest()
        finally:
            self._started.clear()
            for number, handler in zip(signals, previous, strict=True):
                signal.signal(number, handler)

    def stop_level(self, level: int, seconds: float) -> None:
        """Send SIGTERM to one level, and wait for its end; for longer than others are given, if
        what ends there has much to end itself."""
        self._terminate([each for each in self._started if each.level == level], seconds)

    def _terminate(self, those: Sequence[Started], seconds: float = STOP_SECONDS) -> None:
        for started in those:
            started.process.terminate()
        deadline = time.monotonic() + seconds
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
        """Kill descendants until none is left: the children of each that dies become ours."""
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
            started.process.poll()  # reaps it


def describe_exit(started: Started) -> str:
    """One sentence on a process that ended: how, with its last log line, and where its log is."""
    where = f"; its log is {started.log}" if started.log else ""
    return f"{started.name} {how_it_ended(started)}{where}"


def how_it_ended(started: Started) -> str:
    """How a process ended, with its last log line, as a predicate."""
    code = started.process.returncode
    if code < 0:  # killed: its last log line has nothing to do with that
        return f"was killed by {signal.Signals(-code).name}"
    said = started.last_log_line
    return f"ended with code {code}" + (f" ({said})" if said else "")


def _die_with_parent() -> None:
    # Set in the child, since a fork clears it. It counts the thread that forked as the parent.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
