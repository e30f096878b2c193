"""`rollyard slurm run`: the batch step of a job, from its nodes to the end of its trainer.

- The fleet is planned from what Slurm allocated, and every node starts its part of the plan.
- The trainer starts once all parts are ready, and the job ends with the trainer's exit code.
- While it runs, the fleet is planned again when nodes fall silent or are heard of again.
- SIGTERM, and SIGUSR1 when the job's time is nearly over, end the trainer first, then the fleet.
  After SIGUSR1 the job is queued again; it goes on with the queues that Redis has on disk.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from types import FrameType

from launch.deployment_tls import prepare_tls
from launch.fleet import FleetPlan, write_fleet
from launch.fleet_keeper import LOOK_SECONDS, FleetKeeper
from launch.fleet_start import ENVIRONMENT, await_fleet, write_environment
from launch.node_command import FAILED
from launch.processes import Processes, Started, describe_exit, how_it_ended, module_command
from launch.slurm.allocation import addresses_of, allocated_nodes, own_job_id, scontrol
from launch.slurm.settings import TRAINER_LOG, SlurmJob
from launch.up import tell_operator
from orchestrator.placement import place
from rollyard.errors import LaunchError
from rollyard.tokens import make_password_file, make_token_file

NODES_SECONDS = 40.0
"""Time for the nodes to stop: each stops its levels one after the other, in 10 s at most."""
NODES_LEVEL, TRAINER_LEVEL = 1, 2


class Warned(BaseException):
    """The job's time is nearly over. It is no `Exception`, so that only the end of the job catches
    it."""


def run_job(job: SlurmJob) -> int:
    """Run the job that this process is the batch step of. Returns the trainer's exit code."""
    signal.signal(signal.SIGUSR1, _warn)
    job_id = own_job_id(os.environ)
    with Processes() as processes:
        run = JobRun(job, job_id, processes)
        try:
            return run.work()
        except Warned:
            tell_operator("the job's time is nearly over")
            run.stop()
            if not job.requeue:
                raise LaunchError("the job's time was over before its trainer ended") from None
            tell_operator("the job is queued again")
            scontrol("requeue", job_id)
            return 0
        finally:
            run.stop()


class JobRun:
    """One life of a job. Its processes are the trainer, and the `srun` that holds all nodes."""

    def __init__(self, job: SlurmJob, job_id: str, processes: Processes) -> None:
        self._job = job
        self._job_id = job_id
        self._processes = processes
        self._nodes: Started | None = None

    def work(self) -> int:
        """Everything, until the trainer ends. Returns its exit code. Raises `LaunchError`."""
        fleet = plan_fleet(self._job, self._job_id)
        self._nodes = self._processes.start_again(
            "srun", nodes_command(self._job, os.environ), level=NODES_LEVEL, piped=True
        )
        await_fleet(fleet, self._check_nodes)
        write_environment(fleet)
        tell_operator(f"all {len(fleet.nodes)} nodes are ready")
        trainer = self._start_trainer(fleet)
        keeper = FleetKeeper(fleet, tell_operator)
        while trainer is None or trainer.process.poll() is None:
            self._processes.wait_for_exits(LOOK_SECONDS)
            self._check_nodes()
            keeper.look()
        tell_operator(f"the trainer {how_it_ended(trainer)}")
        code = trainer.process.returncode
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Stop the trainer in its own time, then the nodes in theirs. Nothing interrupts it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        self._processes.stop_level(TRAINER_LEVEL, self._job.trainer_seconds)
        if self._nodes is None or self._nodes.process.poll() is not None:
            return
        assert self._nodes.process.stdin is not None
        # Signals of Slurm reach every process of a node at once, Redis before those that need it.
        self._nodes.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._nodes.process.wait(NODES_SECONDS)

    def _start_trainer(self, fleet: FleetPlan) -> Started | None:
        if not self._job.command:
            return None
        os.environ.update(fleet.environment())
        return self._processes.start_again(
            "the trainer",
            ("bash", "-c", self._job.command),
            fleet.settings.directory / TRAINER_LOG,
            level=TRAINER_LEVEL,
        )

    def _check_nodes(self) -> None:
        assert self._nodes is not None
        if self._nodes.process.poll() is not None:
            raise LaunchError(f"no node is left: {describe_exit(self._nodes)}")


def plan_fleet(job: SlurmJob, job_id: str) -> FleetPlan:
    """The fleet on the nodes of this job, written for all of them. Raises `LaunchError`."""
    nodes = allocated_nodes(job_id)
    settings = job.fleet
    placement = place(nodes, tensor_parallel=settings.tensor_parallel)
    addresses = addresses_of([node.name for node in nodes])
    fleet = FleetPlan(settings=settings, placement=placement, addresses=addresses)
    if settings.tls is not None:
        prepare_tls(settings.tls, tuple(addresses.values()))
    make_token_file(settings.token_file)
    make_password_file(settings.redis_password_file)
    for node in fleet.nodes:  # what an earlier life of the job has left
        (settings.directory_of(node) / FAILED).unlink(missing_ok=True)
    (settings.directory / ENVIRONMENT).unlink(missing_ok=True)
    write_fleet(fleet)
    return fleet


def nodes_command(job: SlurmJob, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command that holds one task on each node, of all components of the job."""
    components = int(environment.get("SLURM_HET_SIZE", "1"))
    groups = ",".join(str(i) for i in range(components))
    return (
        "srun",
        *((f"--het-group={groups}",) if components > 1 else ()),
        "--overlap",  # the trainer may have steps of its own
        "--ntasks-per-node=1",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--unbuffered",
        *module_command("launch.cli", "node", "--directory", str(job.fleet.directory)),
        "--until-input-ends",
    )


def _warn(_signal: int, _frame: FrameType | None) -> None:
    raise Warned
