"""Runs one command of an unsafe-local sandbox, and ends with it all that it started.

It is a program of its own, which imports nothing of Rollyard: `supervisor.py SERVER USER DIRECTORY
COMMAND …`. With the process SERVER everything ends too, however that ends.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CANNOT_START = 125
_DEATH_SECONDS = 5.0
_LOOK_SECONDS = 0.002
_PARENT = 1
"""Position in /proc/PID/stat behind the name, which may contain anything."""


def main() -> int:
    server, user, directory, *command = sys.argv[1:]
    control = ctypes.CDLL(None, use_errno=True).prctl
    control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        servers_end = os.pidfd_open(int(server))
        child = _start(command, int(user), Path(directory))
    except OSError as error:
        print(f"cannot start a command: {error}", file=sys.stderr)
        return _CANNOT_START
    ended = os.pidfd_open(child.pid)
    select.select([servers_end, ended], [], [])
    child.kill()
    code = child.wait()
    _end_all()
    return code if code >= 0 else 128 - code


def _start(command: list[str], user: int, directory: Path) -> "subprocess.Popen[bytes]":
    owner: int | None = user if os.geteuid() == 0 else None
    return subprocess.Popen(
        command,
        cwd=directory / "workspace",
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory / "workspace"),
            "TMPDIR": str(directory / "tmp"),
            "LANG": "C.UTF-8",
        },
        start_new_session=True,
        user=owner,
        group=owner,
        extra_groups=None if owner is None else [],
    )


def _end_all() -> None:
    """Kill every process below this one. The kernel gives it those whose parents have ended, so
    that once it has no child there is none."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while time.monotonic() < deadline:
        for process in _below(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            time.sleep(_LOOK_SECONDS)
            continue
        return


def _below(process: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (each / "stat").read_bytes().rpartition(b") ")[2].split()
            children.setdefault(int(words[_PARENT]), []).append(int(each.name))
    waiting = [process]
    while waiting:
        found = children.get(waiting.pop(), [])
        yield from found
        waiting += found


if __name__ == "__main__":
    sys.exit(main())
