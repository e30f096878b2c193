"""`rollyard node`: what one node of a fleet runs, kept running until SIGTERM.

Cluster launchers start it once on each node; it finds the rest in the fleet's directory, or is told
where to take it over from.
"""

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from launch.deployment_tls import trust
from launch.documents import write_whole
from launch.fleet import FleetPlan, read_fleet
from launch.fleet_files import files_in, take_over
from launch.gpus import visible_gpus
from launch.local import LOGS, start
from launch.node_processes import processes_of
from launch.output import not_empty
from launch.process_spec import ProcessSpec
from launch.processes import Processes
from launch.supervisor import Supervisor
from launch.up import tell_operator
from rollyard.errors import LaunchError, RollyardError

FAILED = "failed"
"""File of a node's directory: the sentence with which it could not start."""

FleetDirectory = Annotated[
    Path, typer.Option("--directory", help="Directory of the fleet, which its nodes may share.")
]
NodeName = Annotated[
    str,
    typer.Option(
        "--name", help="Which of the nodes it is.", envvar="SLURMD_NODENAME", callback=not_empty
    ),
]


UntilInputEnds = Annotated[
    bool, typer.Option("--until-input-ends", help="Stop when there is nothing more to read.")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Directory of the fleet's plan and secrets, which are copied first: for nodes that "
        "share none.",
        show_default=False,
    ),
]


def node_command(
    directory: FleetDirectory,
    name: NodeName,
    until_input_ends: UntilInputEnds = False,
    source: Source = None,
) -> None:
    """Run one node of a fleet, as its launcher has planned it."""
    if until_input_ends:
        threading.Thread(target=_stop_when_input_ends, name="input", daemon=True).start()
    if source is not None:
        take_over(files_in(source), directory.resolve())
    fleet = read_fleet(directory.resolve())
    if name not in fleet.addresses:
        raise LaunchError(
            f"the fleet of {directory} has no node {name}",
            fix=f"it has: {' '.join(fleet.addresses)}",
        )
    with failure_told(fleet.settings.directory_of(name)):
        keep_node(fleet, name)


def keep_node(
    fleet: FleetPlan,
    name: str,
    once_ready: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Start a node and keep it running, `once_ready` within that. It ends by raising."""
    directory = fleet.settings.directory_of(name)
    if fleet.settings.tls is not None:
        trust(fleet.settings.tls)
    plan = processes_of(fleet, name, visible_gpus())
    with Processes() as processes:
        parts = start(plan, directory / LOGS, processes)
        plan_again = functools.partial(as_planned_now, fleet.settings.directory, name)
        with once_ready():
            tell_operator(f"{name} is ready")
            Supervisor(parts, processes, directory, tell_operator, plan_again=plan_again).keep()


def as_planned_now(directory: Path, node: str, spec: ProcessSpec) -> ProcessSpec:
    """A process of a node, as the fleet's launcher has planned it last."""
    with contextlib.suppress(LaunchError):  # a shared disk that is away does not end the node
        now = {
            each.name: each for each in processes_of(read_fleet(directory), node, visible_gpus())
        }
        return now.get(spec.name, spec)
    return spec


def _stop_when_input_ends() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def failure_told(directory: Path) -> Iterator[None]:
    """Leave the sentence with which the block fails to the fleet's launcher."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FAILED).unlink(missing_ok=True)
    try:
        yield
    except RollyardError as error:
        write_whole(directory / FAILED, str(error))
        raise


def why_failed(fleet: FleetPlan, node: str) -> str:
    """The sentence with which a node has ended; empty if it has not."""
    with contextlib.suppress(FileNotFoundError):
        return (fleet.settings.directory_of(node) / FAILED).read_text()
    return ""
