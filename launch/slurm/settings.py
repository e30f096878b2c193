"""What a job of Slurm is told by the one who submits it, in a file of the fleet's directory."""

from pathlib import Path

import msgspec

from launch.documents import read_document
from launch.fleet import FleetSettings
from rollyard.errors import LaunchError

SETTINGS = "slurm.json"
BESIDE = "beside.json"
"""The settings of a fleet that runs beside the batch script of others."""
SCRIPT = "job.sh"
JOB_ID = "job-id"
JOB_LOG = "job.log"
TRAINER_LOG = "trainer.log"


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: the fleet's nodes, and the trainer beside it."""

    fleet: FleetSettings
    command: str
    """The trainer, a command of the shell; the job ends when it does. Empty to serve until the job
    is cancelled."""
    name: str = "rollyard"
    gpu_nodes: int = 1
    gpus_per_node: int = 8
    cpu_nodes: int = 0
    time_limit: str = ""
    """As sbatch takes it; empty for the partition's own."""
    warning_seconds: int = 120
    """How long before the end of its time the job begins to leave, to be queued again."""
    trainer_seconds: float = 60.0
    """Time for the trainer to end after its SIGTERM."""
    requeue: bool = True
    """True to be queued again when the time is over or the head is lost."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, for all nodes."""
    gpu_options: tuple[str, ...] = ()
    """Those for the nodes with GPUs alone."""
    cpu_options: tuple[str, ...] = ()
    """Those for the nodes without."""

    def __post_init__(self) -> None:
        if self.gpu_nodes < 0 or self.cpu_nodes < 0 or self.gpu_nodes + self.cpu_nodes < 1:
            raise LaunchError("a fleet needs at least one node")
        for option in (*self.options, *self.gpu_options, *self.cpu_options):
            if not option.startswith("-") or "\n" in option:
                raise LaunchError(
                    f"{option!r} is not an option of sbatch", fix="write it as --partition=NAME"
                )


def check_directory(directory: Path) -> None:
    """Raise `LaunchError` unless there is, or was, a job in the directory."""
    if not (directory / BESIDE).exists():
        read_job(directory)


def read_job(directory: Path) -> SlurmJob:
    """The job whose fleet has this directory. Raises `LaunchError`."""
    fix = "name the directory of a `rollyard slurm submit` with --directory"
    return read_document(directory / SETTINGS, SlurmJob, fix=fix)
