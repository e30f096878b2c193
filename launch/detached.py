"""`rollyard up --detach` and `rollyard down`: a deployment without a terminal.

- The launcher becomes a process of its own session; its output goes to `up.log`.
- Until everything is ready the command waits for it, shows its progress, and stops it if the
  command itself is stopped.
"""

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rich.console import Console

from launch.local import LOGS, log_of
from launch.lock import holder, locked
from launch.logs import last_line, make_room
from launch.plan import DeploymentSettings
from launch.up import Urls, announce, keep_up, one_line
from rollyard.errors import LaunchError

LAUNCHER = "up"
MAX_DOWN_SECONDS = 90.0
"""Time for a deployment to stop: its levels stop one after the other, each in 10 s at most."""


def up_detached(settings: DeploymentSettings, console: Console) -> None:
    """Start a deployment, return once everything is ready, and leave it running."""
    with locked(settings.directory):  # the log of a deployment that runs must stay in place
        log = log_of(LAUNCHER, settings.directory / LOGS)
        log.parent.mkdir(exist_ok=True)
        make_room(log)
        log.touch()
    reader, writer = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        os.close(reader)
        _become_launcher(writer, log)
        keep_up(settings, _tell, _tell_ready)
    os.close(writer)
    with os.fdopen(reader) as told, _ended_with_us(launcher):
        urls = _until_ready(told, console)
        if urls is None:
            os.waitpid(launcher, 0)
            raise LaunchError(last_line(log).removeprefix("rollyard: "))
    announce(urls, settings, console, how_to_stop="`rollyard down` stops it all.")


def _become_launcher(writer: int, log: Path) -> None:
    os.setsid()  # else Ctrl-C and the end of the terminal would reach the launcher
    with log.open("a") as said, Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
        os.dup2(writer, sys.stdout.fileno())
        os.dup2(said.fileno(), sys.stderr.fileno())
    os.close(writer)


def _tell(said: str) -> None:
    print(json.dumps(said), flush=True)


def _tell_ready(urls: Urls) -> None:
    print(json.dumps(urls), flush=True)
    with Path(os.devnull).open("w") as nothing:  # nobody reads from here on
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _until_ready(told: IO[str], console: Console) -> Urls | None:
    """The deployment's URLs once it is ready; None if the launcher ended before that."""
    with console.status("starting") as status:
        for line in told:
            said: str | Urls = json.loads(line)
            if not isinstance(said, str):
                return said
            status.update(one_line(said))
    return None


@contextlib.contextmanager
def _ended_with_us(launcher: int) -> Iterator[None]:
    try:
        yield
    except LaunchError:
        raise
    except BaseException:
        os.kill(launcher, signal.SIGTERM)
        os.waitpid(launcher, 0)
        raise


def down(directory: Path) -> int:
    """Stop the deployment in `directory`. Returns its launcher's process id once all processes
    have ended."""
    pid = holder(directory)
    if pid is None:
        raise LaunchError(
            f"no rollyard runs in {directory}",
            fix="name the one it runs in with --directory",
        )
    if pid <= 0:  # the kernel's name for a process outside this PID namespace
        raise LaunchError(
            f"the rollyard in {directory} runs in another container, or on another machine",
            fix="stop it there",
        )
    try:
        process = os.pidfd_open(pid)
        if holder(directory) != pid:  # it has just ended, and its id may have been reused
            return pid
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:
        return pid
    except PermissionError as error:
        raise LaunchError(f"the rollyard in {directory} (pid {pid}) is another user's") from error
    ended = select.poll()
    ended.register(process, select.POLLIN)
    has_ended = ended.poll(MAX_DOWN_SECONDS * 1000)
    os.close(process)
    if not has_ended:
        raise LaunchError(
            f"the rollyard in {directory} (pid {pid}) did not end in {MAX_DOWN_SECONDS:g} s",
            fix=f"its logs in {directory / LOGS} say why",
        )
    return pid
