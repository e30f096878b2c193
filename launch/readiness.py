"""Waiting until a process that was started answers, and no longer than it lives."""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import requests

from launch.processes import Started, describe_exit
from rollyard.errors import LaunchError
from rollyard.http import DirectSession

PROBE_SECONDS = 0.1
"""Interval between probes of a process that is starting, which cannot notify us."""


def accepts(port: int) -> bool:
    """Whether something on this machine listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def answers(url: str, ca_file: Path | None = None) -> bool:
    """Whether a GET of the URL is answered with 200; CAs in `ca_file` are trusted, too."""
    with (
        contextlib.suppress(requests.RequestException),
        DirectSession(ca_file=ca_file) as session,
    ):
        return session.get(url, timeout=2).status_code == 200
    return False


def wait_until_ready(
    started: Started,
    is_ready: Callable[[], object],
    ready_seconds: float,
    watch: Callable[[float], None] = lambda waited: None,
) -> float:
    """The seconds until it was ready. `watch` is told the seconds at each look, and may raise.

    Raises `LaunchError` when the process ends first, or is not ready after `ready_seconds`.
    """
    began = time.monotonic()
    while not is_ready():
        waited = time.monotonic() - began
        watch(waited)
        if started.process.poll() is not None:
            raise LaunchError(describe_exit(started))
        if waited > ready_seconds:
            raise _late(started, ready_seconds)
        time.sleep(PROBE_SECONDS)
    return time.monotonic() - began


def _late(started: Started, ready_seconds: float) -> LaunchError:
    """The error for a process that is late. It tells how long the process computed, so that a busy
    machine is not mistaken for a defect."""
    said = started.last_log_line
    return LaunchError(
        f"{started.name} was not ready after {ready_seconds:g} s, in which it computed for "
        f"{started.seconds_computed():.0f} s" + (f" and last said: {said}" if said else ""),
        fix=f"if it was on its way, give it longer with --start-seconds; its log is {started.log}",
    )
