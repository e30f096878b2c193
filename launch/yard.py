"""A whole Rollyard on this machine: started in order, watched, stopped.

- The directory is locked: two yards never share the queues' data.
- Everything is checked before anything is started.
- Its services want tokens, made once for the directory; this user's clients here find them.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import requests

from launch.plan import LLMKind, ProcessSpec, YardSettings, local_plan
from launch.ports import check_free
from launch.processes import Processes
from llm_servers.vllm_server import check_model, check_python
from rollyard.errors import LaunchError
from rollyard.http import DirectSession
from rollyard.tokens import left_for_clients, make_password_file, make_token_file

PROBE_SECONDS = 0.2
"""Between two looks at a process that is starting: nothing there could wake us."""

LOCK = "lock"

Report = Callable[[str], None]
"""Told what is being waited for."""


@contextlib.contextmanager
def running_yard(
    settings: YardSettings, processes: Processes, report: Report, *, fresh: bool = False
) -> Iterator[tuple[ProcessSpec, ...]]:
    """Start everything; yields the plan when all of it is ready; stops all of it in the end.
    A `fresh` yard starts from nothing: what an earlier one left in its directory is removed.

    Raises `LaunchError` when something cannot be started or dies while it starts.
    """
    check(settings)
    plan = local_plan(settings)
    with locked(settings.directory), processes:
        check_free(settings.ports)
        if fresh:
            clear(settings.directory)
        make_token_file(settings.token_file)
        make_password_file(settings.redis_password_file)
        start(plan, settings.directory / "logs", processes)
        for spec in plan:
            report(spec.name)
            wait_until_ready(spec, processes)
        url = next(spec.url for spec in plan if spec.name == "orchestrator")
        with left_for_clients(url, settings.token_file):
            yield plan


def check(settings: YardSettings) -> None:
    """Raise `LaunchError` for what would fail later, before anything is started."""
    check_model(settings.model)
    if settings.llm is LLMKind.VLLM:
        try:
            check_python(settings.llm_python)
        except LaunchError as error:
            raise LaunchError(
                f"there is no vLLM environment at {settings.llm_python}",
                fix="make it with `make environments`, or name another with --llm-python",
            ) from error


def start(plan: tuple[ProcessSpec, ...], logs: Path, processes: Processes) -> None:
    for spec in plan:
        processes.start(spec.name, spec.command, logs / f"{spec.name}.log")


def wait_until_ready(spec: ProcessSpec, processes: Processes) -> None:
    deadline = time.monotonic() + spec.ready_seconds
    while not is_ready(spec):
        processes.check()
        if time.monotonic() > deadline:
            raise LaunchError(
                f"{spec.name} was not ready after {spec.ready_seconds:g} s",
                fix="its log says what it waits for",
            )
        processes.wait_for_first_exit(PROBE_SECONDS)
    processes.check()


def is_ready(spec: ProcessSpec) -> bool:
    if not spec.ready_path:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", spec.port), 1):
            return True
        return False
    with contextlib.suppress(requests.RequestException), DirectSession() as session:
        return session.get(spec.url + spec.ready_path, timeout=2).status_code == 200
    return False


def clear(directory: Path) -> None:
    """Remove all but the lock: a lock that is gone keeps nobody out."""
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != LOCK:
            entry.unlink()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for one yard. Raises `LaunchError` when another one holds it."""
    with _lock_file(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise LaunchError(
                f"another rollyard (pid {lock.read().strip()}) runs in {directory}",
                fix="stop it, or give this one a --directory of its own",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _lock_file(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / LOCK).open("a+")
    except OSError as error:
        raise LaunchError(
            f"cannot write in the directory {directory}: {error.strerror}",
            fix="name another one with --directory (of `rollyard demo`: --output)",
        ) from error
