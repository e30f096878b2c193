"""`rollyard restart PART`: end one process of a deployment, and wait until it is back.

- Its launcher starts it again, as after any death; here it is only ended, and watched.
- It is told to end before it is killed: an agent server reports what is finished.
"""

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Annotated

import psutil
import typer

from launch.engine import LLM_START_SECONDS
from launch.lock import holder
from launch.output import DEFAULT_DIRECTORY, Directory, Json, not_empty, show
from launch.parts import PartStatus, read_parts
from launch.processes import STOP_SECONDS, signal_group
from launch.readiness import PROBE_SECONDS
from launch.restarts import PartState
from rollyard.errors import LaunchError

PartName = Annotated[
    str,
    typer.Argument(
        metavar="PART", help="The process, as `rollyard up` has named it.", callback=not_empty
    ),
]
BackSeconds = Annotated[
    float, typer.Option("--start-seconds", help="Time for it to be ready, in seconds.", min=1)
]


def restart_command(
    part: PartName,
    directory: Directory = DEFAULT_DIRECTORY,
    start_seconds: BackSeconds = LLM_START_SECONDS,
    json: Json = False,
) -> None:
    """End one process of what runs in a directory, and wait until its launcher has it ready
    again."""
    began = time.monotonic()
    back = restart(directory.resolve(), part, start_seconds)
    show(back, [f"{part} is ready again after {time.monotonic() - began:.0f} s"], json=json)


def restart(directory: Path, name: str, start_seconds: float) -> PartStatus:
    """The part once it is ready again. Raises `LaunchError`."""
    launcher = holder(directory)
    if launcher is None:
        raise LaunchError(
            f"no rollyard runs in {directory}", fix="name the one it runs in with --directory"
        )
    before = _part(directory, name)
    if before.state is PartState.GIVEN_UP:
        raise LaunchError(
            f"{name} was given up, since it {before.reason}",
            fix=f"mend what its log {before.log} says, then start everything anew",
        )
    if before.pid:
        _end(before, launcher)
    return _await_back(directory, before, start_seconds)


def _part(directory: Path, name: str) -> PartStatus:
    parts = {part.name: part for part in read_parts(directory)}
    if name not in parts:
        raise LaunchError(
            f"the rollyard in {directory} has no part {name}", fix=f"it has: {', '.join(parts)}"
        )
    return parts[name]


def _end(part: PartStatus, launcher: int) -> None:
    """End the process in its own time, then whatever is left of its group."""
    with (
        contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess),
        contextlib.ExitStack() as on,
    ):
        process = os.pidfd_open(part.pid)
        on.callback(os.close, process)
        if psutil.Process(part.pid).ppid() != launcher:  # it ended, and its id is another's now
            return
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(STOP_SECONDS * 1000):
            signal_group(part.pid, signal.SIGKILL, ended=False)


def _await_back(directory: Path, before: PartStatus, seconds: float) -> PartStatus:
    deadline = time.monotonic() + seconds
    while True:
        now = _part(directory, before.name)
        if now.state is PartState.READY and now.restarts > before.restarts:
            return now
        if now.state is PartState.GIVEN_UP:
            raise LaunchError(f"{now.name} was given up: it {now.reason}", fix=f"see {now.log}")
        if holder(directory) is None:
            raise LaunchError(f"the rollyard in {directory} has ended", fix=f"see {now.log}")
        if time.monotonic() > deadline:
            raise LaunchError(
                f"{now.name} was not ready again after {seconds:g} s",
                fix=f"its log is {now.log}; give it longer with --start-seconds",
            )
        time.sleep(PROBE_SECONDS)  # the launcher writes a file, and cannot notify us
