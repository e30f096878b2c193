"""A fleet that starts: the wait for every server of every node, and what a trainer is told then."""

import shlex
import time
from collections.abc import Callable

from launch.documents import write_whole
from launch.fleet import FleetPlan
from launch.local import is_ready
from launch.node_command import why_failed
from launch.node_processes import processes_of
from launch.process_spec import ProcessSpec
from launch.readiness import PROBE_SECONDS
from rollyard.errors import LaunchError

ENVIRONMENT = "environment"
"""File with what a trainer has to know, to be sourced by a shell."""


def await_fleet(fleet: FleetPlan, check: Callable[[], None]) -> None:
    """Wait until every server of every node is ready. Raises `LaunchError` if a node has failed, is
    late, or as `check` does."""
    waiting = [
        (node, spec)
        for node in fleet.nodes
        for spec in processes_of(fleet, node)
        if spec.ready_path and spec.host == fleet.addresses[node]
    ]
    began = time.monotonic()
    while waiting := [(node, spec) for node, spec in waiting if not is_ready(spec)]:
        check()
        for node in fleet.nodes:
            if reason := why_failed(fleet, node):
                raise LaunchError(f"node {node} could not start: {reason}")
        _check_time(*waiting[0], time.monotonic() - began)
        time.sleep(PROBE_SECONDS)  # other nodes cannot notify us


def _check_time(node: str, spec: ProcessSpec, waited: float) -> None:
    # Its node says what is late more exactly, if the node runs at all.
    if waited > 1.5 * spec.ready_seconds:
        raise LaunchError(
            f"{spec.name} of node {node} was not ready at {spec.url} after {waited:.0f} s",
            fix=f"its log is in the fleet's directory, in nodes/{node}/logs",
        )


def write_environment(fleet: FleetPlan) -> str:
    """Write the file from which other shells learn what the trainer is told. Returns its text."""
    variables = fleet.environment().items()
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables)
    write_whole(fleet.settings.directory / ENVIRONMENT, text)
    return text
