"""A deployment on this machine: started in order, watched, and stopped.

- Its directory is locked: two deployments never share the queues' data.
- Everything is checked before anything is started.
- Its services require tokens, made once for the directory, which this user's clients find.
"""

import contextlib
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import requests

from launch.engine import LLMKind
from launch.lock import LOCK, locked
from launch.logs import last_line
from launch.plan import DeploymentSettings, ProcessSpec, local_plan
from launch.ports import check_free
from launch.processes import Processes
from launch.vllm_environment import find_vllm
from llm_servers.vllm_server import check_model
from rollyard.errors import LaunchError
from rollyard.http import DirectSession
from rollyard.tokens import left_for_clients, make_password_file, make_token_file

PROBE_SECONDS = 0.2
"""Interval between probes of a process that is starting, which cannot notify us."""

LOGS = "logs"

Report = Callable[[str], None]
"""A function that is called, again and again, with what is being waited for."""


@contextlib.contextmanager
def running_deployment(
    settings: DeploymentSettings, processes: Processes, report: Report, *, fresh: bool = False
) -> Iterator[tuple[ProcessSpec, ...]]:
    """A block in which a deployment runs: started and ready at its begin, stopped at its end.

    Yields the plan. A `fresh` deployment first removes everything but logs that an earlier one left
    in its directory. Raises `LaunchError` if a process cannot be started, or dies while it starts.
    """
    check(settings)
    plan = local_plan(settings)
    with locked(settings.directory), processes:
        check_free(settings.ports)
        if fresh:
            clear(settings.directory)
        make_token_file(settings.token_file)
        make_password_file(settings.redis_password_file)
        logs = settings.directory / LOGS
        start(plan, logs, processes)
        for spec in plan:
            wait_until_ready(spec, processes, logs, report)
        url = next(spec.url for spec in plan if spec.name == "orchestrator")
        with left_for_clients(url, settings.token_file):
            yield plan


def check(settings: DeploymentSettings) -> None:
    """Raise `LaunchError` for problems that would only show once processes are started."""
    check_model(settings.model)
    if settings.engine.kind is LLMKind.VLLM:
        find_vllm(settings.engine.python)


def start(plan: tuple[ProcessSpec, ...], logs: Path, processes: Processes) -> None:
    for spec in plan:
        processes.start(spec.name, spec.command, log_of(spec.name, logs), level=spec.level)


def log_of(name: str, logs: Path) -> Path:
    return logs / f"{name}.log"


def wait_until_ready(
    spec: ProcessSpec, processes: Processes, logs: Path, report: Report = lambda _: None
) -> None:
    began = time.monotonic()
    while not is_ready(spec):
        processes.check()
        waited = time.monotonic() - began
        if waited > spec.ready_seconds:
            raise _late(spec, processes.seconds_computed(spec.name), log_of(spec.name, logs))
        said = last_line(log_of(spec.name, logs))
        says = f"; it says: {said}" if said else ""
        report(f"waiting for {spec.name} for {waited:.0f} s{says}")
        processes.wait_for_first_exit(PROBE_SECONDS)
    processes.check()


def _late(spec: ProcessSpec, computed: float, log: Path) -> LaunchError:
    """The error for a process that is late. It tells how long the process computed, so that a busy
    machine is not mistaken for a defect."""
    said = last_line(log)
    return LaunchError(
        f"{spec.name} was not ready after {spec.ready_seconds:g} s, in which it computed for "
        f"{computed:.0f} s" + (f" and last said: {said}" if said else ""),
        fix=f"if it was on its way, give it longer with --start-seconds; its log is {log}",
    )


def is_ready(spec: ProcessSpec) -> bool:
    if not spec.ready_path:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", spec.port), 1):
            return True
        return False
    with contextlib.suppress(requests.RequestException), DirectSession() as session:
        return session.get(spec.url + spec.ready_path, timeout=2).status_code == 200
    return False


def clear(directory: Path) -> None:
    """Remove all but the logs and the lock, which must stay as long as it is held."""
    for entry in directory.iterdir():
        if entry.name in (LOCK, LOGS):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
