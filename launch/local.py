"""A deployment on this machine: started in order, watched, and stopped.

- Its directory is locked: two deployments never share the queues' data.
- Everything is checked before anything is started.
- Its services require tokens, made once for the directory, which this user's clients find.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from launch.deployment_tls import prepare_tls
from launch.engine import Engine, LLMKind
from launch.llm_processes import LOOPBACK
from launch.lock import LOCK, locked
from launch.plan import DeploymentSettings, local_plan
from launch.ports import check_free, check_own
from launch.process_spec import ProcessSpec
from launch.processes import Processes, Started
from launch.readiness import accepts, answers, wait_until_ready
from launch.vllm_environment import find_vllm
from llm_servers.checkpoint import check_model
from rollyard.left_files import left_for_clients
from rollyard.tokens import make_password_file, make_token_file

LOGS = "logs"

RunningPart = tuple[ProcessSpec, Started]

Report = Callable[[str], None]
"""A function that is called, again and again, with what is being waited for."""


@contextlib.contextmanager
def running_deployment(
    settings: DeploymentSettings, processes: Processes, report: Report, *, fresh: bool = False
) -> Iterator[list[RunningPart]]:
    """A block in which a deployment runs: started and ready at its begin, stopped at its end.

    Yields its parts, in the order in which they started. A `fresh` deployment first removes
    everything but logs that an earlier one left in its directory. Raises as `check`, and
    `LaunchError` if callers would refuse its certificate, or if a process cannot be started, or
    dies while it starts.
    """
    check(settings)
    plan = local_plan(settings)
    # In this order, so that the lock is held until the last process has ended.
    with locked(settings.directory), processes:
        check_own(settings.host)
        for host in {LOOPBACK, settings.host}:
            check_free(settings.ports.named(), host)
        if fresh:
            clear(settings.directory)
        ca_file = None
        if settings.tls is not None:
            prepare_tls(settings.tls, (settings.host,))
            ca_file = settings.tls.ca_file
        make_token_file(settings.token_file)
        make_password_file(settings.redis_password_file)
        logs = settings.directory / LOGS
        parts = start(plan, logs, processes, report)
        with left_for_clients(settings.orchestrator_url, settings.token_file, ca_file):
            yield parts


def check(settings: DeploymentSettings) -> None:
    """Check what would otherwise fail once processes are started. Raises `InvalidMessage` for a
    model that cannot be served, and `LaunchError` if vLLM is missing."""
    check_parts(settings.model, settings.engine)


def check_parts(model: Path, engine: Engine) -> None:
    """Check a model and the engine of its LLM servers; raises as `check`."""
    check_model(model)
    if engine.kind is LLMKind.VLLM:
        find_vllm(engine.python)


def start(
    plan: Sequence[ProcessSpec], logs: Path, processes: Processes, report: Report = lambda _: None
) -> list[RunningPart]:
    """Start all processes of a plan in its order, each once those are ready that it starts after,
    and wait until all are ready. Raises `LaunchError` as soon as one ends or is late."""
    running: dict[str, RunningPart] = {}
    for spec in plan:
        for earlier in spec.after:
            await_part(*running[earlier], processes, report)
        log = log_of(spec.name, logs)
        started = processes.start(spec.name, spec.command, log, level=spec.level)
        running[spec.name] = (spec, started)
    for spec, started in running.values():
        await_part(spec, started, processes, report)
    return list(running.values())


def log_of(name: str, logs: Path) -> Path:
    return logs / f"{name}.log"


def await_part(
    spec: ProcessSpec, started: Started, processes: Processes, report: Report = lambda _: None
) -> None:
    """Wait until it is ready. Raises `LaunchError` also when any other process ends before."""

    def watch(waited: float) -> None:
        processes.check()
        said = started.last_log_line
        says = f"; it says: {said}" if said else ""
        report(f"waiting for {spec.name} for {waited:.0f} s{says}")

    wait_until_ready(started, lambda: is_ready(spec), spec.ready_seconds, watch)
    processes.check()


def is_ready(spec: ProcessSpec) -> bool:
    return answers(spec.url + spec.ready_path) if spec.ready_path else accepts(spec.port)


def clear(directory: Path) -> None:
    """Remove all but the logs and the lock, which must stay as long as it is held."""
    for entry in directory.iterdir():
        if entry.name in (LOCK, LOGS):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
