"""Rollyard beside a batch script of others that runs one command on each node: NeMo-RL's `ray.sub`.

- Each node has one task, the script's SANDBOX_COMMAND. The first node plans the fleet from Slurm's
  variables, and writes the plan for the others.
- There are no LLM servers of ours: the trainer announces its own.
- The script waits for the sandbox port of every node, which opens once all is ready there.
- The tasks end with the job, which Slurm ends when the script does. Queued again, the fleet goes on
  with the queues that Redis has on disk.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from launch.deployment_tls import prepare_tls
from launch.documents import read_document, write_whole
from launch.fleet import FLEET, FleetPlan, FleetSettings, read_fleet, write_fleet
from launch.fleet_start import ENVIRONMENT, write_environment
from launch.node_command import failure_told, keep_node
from launch.readiness import PROBE_SECONDS, answers
from launch.slurm.allocation import names_of, resolved
from launch.slurm.settings import BESIDE, JOB_ID
from orchestrator.placement import agents_alone
from rollyard.errors import LaunchError
from rollyard.tokens import make_password_file, make_token_file

SANDBOX_PORT = 6000
PLAN_SECONDS = 120.0
"""Time for the first node to write the plan, and then for its orchestrator to answer a node that is
up."""


class BesideJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes are told by the one who submits the script."""

    fleet: FleetSettings
    sandbox_port: int = SANDBOX_PORT


class SlurmTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one node, as Slurm's variables tell of it."""

    node: str
    nodes: tuple[str, ...]
    """All nodes of the job, the head first."""
    job_id: str
    life: str
    """The job, and how often it was queued again."""


def read_beside(directory: Path) -> BesideJob:
    """What `rollyard slurm beside` has written. Raises `LaunchError`."""
    fix = "name the directory of a `rollyard slurm beside` with --directory"
    return read_document(directory / BESIDE, BesideJob, fix=fix)


def own_task(variables: Mapping[str, str]) -> SlurmTask:
    """The task that has these variables. Raises `LaunchError`."""
    try:
        job_id, node = variables["SLURM_JOB_ID"], variables["SLURMD_NODENAME"]
        nodes = names_of(variables["SLURM_JOB_NODELIST"])
    except KeyError as error:
        raise LaunchError(
            f"this is no task of a job of Slurm: there is no {error.args[0]}",
            fix="have the batch script run it on each node: `rollyard slurm beside` says how",
        ) from error
    life = f"{job_id}.{variables.get('SLURM_RESTART_COUNT', '0')}"
    return SlurmTask(node=node, nodes=tuple(nodes), job_id=job_id, life=life)


def keep_beside(job: BesideJob, task: SlurmTask) -> None:
    """Run the part of a node and keep it running. It ends by raising."""
    directory = job.fleet.directory
    with failure_told(job.fleet.directory_of(task.node)):
        if task.node == task.nodes[0]:
            fleet = plan_beside(job.fleet, task)
        else:
            fleet = await_plan(directory, task)
        keep_node(fleet, task.node, lambda: _told_ready(fleet, task.node, job.sandbox_port))


def plan_beside(settings: FleetSettings, task: SlurmTask) -> FleetPlan:
    """The fleet on the nodes of this job, written for all of them. Raises `LaunchError`."""
    directory = settings.directory
    if (directory / FLEET).exists():
        _check_that_it_is_over(read_fleet(directory))
    addresses = resolved(list(task.nodes))
    fleet = FleetPlan(
        settings=settings,
        placement=agents_alone(task.nodes),
        addresses=addresses,
        life=task.life,
    )
    if settings.tls is not None:
        prepare_tls(settings.tls, tuple(addresses.values()))
    make_token_file(settings.token_file)
    make_password_file(settings.redis_password_file)
    (directory / ENVIRONMENT).unlink(missing_ok=True)
    write_whole(directory / JOB_ID, task.job_id + "\n")
    write_fleet(fleet)
    return fleet


def await_plan(directory: Path, task: SlurmTask) -> FleetPlan:
    """The plan of this life of the job, once its head has written it. Raises `LaunchError`."""
    deadline = time.monotonic() + PLAN_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(LaunchError):  # it is not there yet
            fleet = read_fleet(directory)
            if fleet.life == task.life:
                return fleet
        time.sleep(PROBE_SECONDS)  # other nodes cannot notify us
    raise LaunchError(
        f"{task.nodes[0]} has written no plan of this job to {directory} within {PLAN_SECONDS:g} s",
        fix="its task says why; the directory has to be on a file system that all nodes share",
    )


@contextlib.contextmanager
def opened(host: str, port: int) -> Iterator[None]:
    """A block in which the port takes connections, and ends them at once. Raises `LaunchError`."""
    try:
        server = socket.create_server((host, port))
    except OSError as error:
        raise LaunchError(
            f"the sandbox port {port} cannot be opened on {host}: {error.strerror}",
            fix="end what has it, or give `rollyard slurm beside` another --sandbox-port",
        ) from error
    with server:
        threading.Thread(target=_accept, args=(server,), name="sandbox", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)  # a thread that accepts keeps a closed port open


def _accept(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            server.accept()[0].close()


@contextlib.contextmanager
def _told_ready(fleet: FleetPlan, node: str, sandbox_port: int) -> Iterator[None]:
    """A block in which the batch script, and on the head the trainer, know that this node is
    ready."""
    _await_orchestrator(fleet)
    if node == fleet.head:
        write_environment(fleet)
    with opened(fleet.llm_host(node), sandbox_port):
        yield


def _await_orchestrator(fleet: FleetPlan) -> None:
    deadline = time.monotonic() + PLAN_SECONDS
    while not answers(f"{fleet.orchestrator_url}/livez"):
        if time.monotonic() > deadline:
            raise LaunchError(
                f"the orchestrator does not answer at {fleet.orchestrator_url} after "
                f"{PLAN_SECONDS:g} s",
                fix=f"its log is in the directory of {fleet.head}",
            )
        time.sleep(PROBE_SECONDS)  # other nodes cannot notify us


def _check_that_it_is_over(fleet: FleetPlan) -> None:
    """Raise `LaunchError` if an earlier fleet of the directory still runs."""
    tls = fleet.settings.tls
    if answers(f"{fleet.orchestrator_url}/livez", None if tls is None else tls.ca_file):
        raise LaunchError(
            f"{fleet.settings.directory} has a job already, {fleet.life.partition('.')[0]}: its "
            f"orchestrator answers at {fleet.orchestrator_url}",
            fix="cancel that one with scancel, or give this one a --directory of its own",
        )
