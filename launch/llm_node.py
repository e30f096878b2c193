"""The LLM servers of one machine beside a deployment: started, watched, and stopped.

- Their number is that of the machine's GPUs over those of each. Without GPUs they use the CPU.
- The directory is locked, as two launchers would write the same logs.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from launch.deployment_tls import prepare_tls
from launch.engine import Engine, LLMKind
from launch.gpus import shared_gpus
from launch.llm_processes import LLMNodeSettings, LLMPlace, llm_processes
from launch.local import LOGS, Report, check_parts, start
from launch.lock import locked
from launch.ports import check_exist, check_free
from launch.processes import Processes
from launch.supervisor import Supervisor
from launch.up import one_line, show_processes, tell_operator
from rollyard.errors import LaunchError

_ALL_GPUS = ("--tensor-parallel-size", "-tp")


def llm_places(
    engine: Engine,
    gpus: tuple[str, ...],
    tensor_parallel: int,
    *,
    first_port: int,
    on_cpu: int | None = None,
) -> tuple[LLMPlace, ...]:
    """The LLM servers of a machine with these GPUs. Their number may be given as `on_cpu` if it
    has none. Raises `LaunchError`."""
    _check_options(engine.further)
    if gpus and on_cpu is not None:
        raise LaunchError(
            f"the number of LLM servers is that of the GPUs, {len(gpus)}, over --tensor-parallel",
            fix="leave out --llm-servers, or compute without GPUs by --llm-on-cpus",
        )
    shares: Sequence[tuple[str, ...]] = shared_gpus(gpus, tensor_parallel) or ((),) * (on_cpu or 1)
    computes = engine.kind is LLMKind.VLLM
    return tuple(
        LLMPlace(port=first_port + i, seed=i, gpus=share if computes else ())
        for i, share in enumerate(shares)
    )


def _check_options(further: Sequence[str]) -> None:
    for option in further:
        if option.partition("=")[0].replace("_", "-") in _ALL_GPUS:
            raise LaunchError(
                f"{option} is not to be given to vLLM here: the number of servers depends on it",
                fix="give --tensor-parallel before the `--`",
            )


def run_llm_node(settings: LLMNodeSettings, directory: Path, console: Console) -> None:
    """Start everything, and keep it running. It ends by raising: `Interrupted`, or `LaunchError` if
    it cannot go on."""
    check_parts(settings.model, settings.engine)
    plan = llm_processes(settings)
    ports = {spec.name: spec.port for spec in plan}
    check_exist(ports)
    with locked(directory), Processes() as processes:
        for spec in plan:
            check_free({spec.name: spec.port}, spec.host)
        if settings.tls is not None:
            prepare_tls(settings.tls, (settings.called_at,))
        with console.status("starting") as status:
            report: Report = lambda said: status.update(one_line(said))  # noqa: E731
            parts = start(plan, directory / LOGS, processes, report)
        supervisor = Supervisor(parts, processes, directory, tell_operator)
        urls = {spec.name: spec.url for spec, _ in parts} | {"llm-proxy": settings.proxy_url}
        title = f"{len(settings.servers)} LLM servers are up. Ctrl-C stops them."
        show_processes(urls, directory, console, title)
        print(json.dumps(urls), flush=True)
        supervisor.keep()
