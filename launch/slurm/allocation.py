"""Which nodes a job has, as `scontrol` tells it: their GPUs and their addresses."""

import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping

from launch.plan_command import parse_nodes
from orchestrator.placement import FleetNode
from rollyard.errors import LaunchError

COMMAND_SECONDS = 60.0
"""Time for a command of Slurm: its controller may be busy."""

Scontrol = Callable[..., str]
"""What `scontrol` with these arguments prints."""

_ALLOCATED = re.compile(r"^ +Nodes=(?P<nodes>\S+) .*?GRES=(?P<gres>\S*)", re.MULTILINE)
_GPUS = re.compile(r"gpu(?::[^:(,]+)?:(?P<count>[0-9]+)")
_BETWEEN = re.compile(r",(?![^\[]*\])")
"""A comma that is not within brackets."""


def slurm(*words: str) -> str:
    """What a command of Slurm prints. Raises `LaunchError`."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except FileNotFoundError as error:
        raise LaunchError(
            f"there is no {words[0]} on this machine",
            fix="call this where Slurm's commands are; without Slurm, use `rollyard up`",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{words[0]} did not end in {COMMAND_SECONDS:g} s") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise LaunchError(f"{words[0]} failed: {said}")
    return done.stdout


def scontrol(*arguments: str) -> str:
    return slurm("scontrol", *arguments)


def allocated_nodes(job_id: str, ask: Scontrol = scontrol) -> list[FleetNode]:
    """The nodes of a job, of all its components in their order, with the GPUs that it has there."""
    told = ask("show", "job", "--details", job_id)
    gpus: dict[str, int] = {}
    for found in _ALLOCATED.finditer(told):
        count = sum(int(each["count"]) for each in _GPUS.finditer(found["gres"]))
        for name in names_of(found["nodes"]):
            gpus[name] = gpus.get(name, 0) + count
    if not gpus:
        raise LaunchError(f"scontrol names no nodes of job {job_id}")
    return [FleetNode(name=name, gpus=count) for name, count in gpus.items()]


def addresses_of(names: list[str], ask: Scontrol = scontrol) -> dict[str, str]:
    """Node -> IP address, by the node's address in Slurm's configuration."""
    told = ask("--oneliner", "show", "node", ",".join(names))
    fields = [_fields(line) for line in told.splitlines() if line.strip()]
    addresses = {each["NodeName"]: each["NodeAddr"] for each in fields}
    return {name: _ip_of(name, addresses.get(name, name)) for name in names}


def resolved(names: list[str]) -> dict[str, str]:
    """Node -> IP address, as `addresses_of`, or of its name where there is no `scontrol`, as in a
    container."""
    if shutil.which("scontrol"):
        return addresses_of(names)
    return {name: _ip_of(name, name) for name in names}


def own_job_id(environment: Mapping[str, str]) -> str:
    """The id of the job whose batch step has this environment; of a heterogeneous one, the first
    component's."""
    try:
        return environment["SLURM_JOB_ID"]
    except KeyError as error:
        raise LaunchError(
            "this is not a job of Slurm", fix="submit one with `rollyard slurm submit`"
        ) from error


def names_of(listed: str) -> list[str]:
    """The names of nodes in Slurm's form, such as gpu[1-4,7],login5."""
    return [node.name for part in _BETWEEN.split(listed) for node in parse_nodes(part)]


def _fields(line: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs}


def _ip_of(node: str, host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LaunchError(
            f"node {node} has the address {host}, which cannot be resolved here"
        ) from error
    return str(found[0][4][0])
