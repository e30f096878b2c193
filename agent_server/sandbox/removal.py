"""Removal of what sandboxes leave on the disk, and of what dead servers left of theirs."""

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from agent_server.sandbox.cgroups import Cgroup, Cgroups

_PREFIX = "rollyard-sandboxes-"
_RECORD = "cgroups"
"""File in a home that names the directories below which its server makes control groups."""
_REMOVAL_SECONDS = 60.0
_DEATH_SECONDS = 5.0
_LOOK_SECONDS = 0.01

_REMOVE = 'rm -rf --one-file-system -- "$1" || { chmod -R u+rwX -- "$1"; rm -rf -- "$1"; }'
"""The second try is for directories that their owner has closed to himself."""

log = structlog.get_logger()


def claim() -> tuple[Path, int]:
    """A new home and the descriptor that holds its lock."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _lock(home)
        if lock is not None and home.exists():  # else a server that starts beside us was quicker
            return home, lock


def record_cgroups(home: Path, cgroups: Cgroups) -> None:
    """Write down where the groups of this home will be, before there are any."""
    (home / _RECORD).write_text("".join(f"{each}\n" for each in cgroups.directories))


def reap_the_dead() -> None:
    """Remove the homes that dead servers of this user left behind, with the processes and control
    groups that bear their names."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if home.lstat().st_uid == os.geteuid():
                _reap_if_dead(home)


def reap(home: Path) -> None:
    """Remove the home of a server that is about to be dead, like `reap_the_dead`."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while not _reap_if_dead(home) and home.exists() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def why_not_removed(directory: Path) -> str:
    """Remove the directory. Returns the reason if that failed, else an empty string."""
    with contextlib.suppress(OSError):
        directory.rmdir()  # most are empty, and a child process costs milliseconds
        return ""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", _REMOVE, "remove", str(directory)],
            stdin=subprocess.DEVNULL,
            process_group=0,
            capture_output=True,
            timeout=_REMOVAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not removed within {_REMOVAL_SECONDS:g} s"
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def _reap_if_dead(home: Path) -> bool:
    """Remove the home, and return True, if no server holds its lock."""
    if (lock := _lock(home)) is None:
        return False
    try:
        reason = _reap(home)
    finally:
        os.close(lock)
    log.info("abandoned_home", directory=str(home), reason=reason or "removed")
    return True


def _reap(home: Path) -> str:
    """Remove all that a dead server had. Returns the reason if that failed."""
    if reason := why_not_dead(home):
        return reason
    for group in _groups(home):
        for each in (*_below(group), group):
            if reason := Cgroup([each]).remove():
                return reason
    return why_not_removed(home)


def why_not_dead(directory: Path) -> str:
    """Kill the processes that name this home or sandbox. Returns the reason if that failed. They
    die with their server by themselves, except one that was only about to ask the kernel for that,
    and what has left its supervisor behind in an unsafe-local sandbox."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while processes := list(_processes_of(directory)):
        if time.monotonic() > deadline:
            return f"process {processes[0]} does not die"
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    return ""


def _processes_of(directory: Path) -> Iterator[int]:
    """The processes that make sandboxes of this home, of whom all others in them are children, and
    those of unsafe-local sandboxes, whose variables say where they are at home."""
    inside = os.fsencode(directory) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            makes_them = inside in command and b"--die-with-parent" in command
            if makes_them or b"HOME=" + inside in (process / "environ").read_bytes():
                yield int(process.name)


def _groups(home: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        parents = (home / _RECORD).read_text().splitlines()
        return [Path(parent) / home.name for parent in parents]
    return []


def _below(group: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [each for each in group.iterdir() if each.is_dir()]
    return []


def _lock(home: Path) -> int | None:
    """A descriptor that holds the directory's lock, unless another process holds it."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as unless_locked:
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        unless_locked.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unless_locked.pop_all()
        return descriptor
    return None
