"""The batch script of a job, as a pure function of its settings.

Nodes with and without GPUs are the two components of a heterogeneous job, so that each has its own
options; a job of one kind of nodes is an ordinary one.
"""

import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from launch.slurm.settings import JOB_LOG, SlurmJob


def batch_script(job: SlurmJob, *, programs: Path, submit_directory: Path) -> str:
    """The script. `programs` has the `rollyard` command, and the trainer runs in
    `submit_directory`."""
    groups = [group for group in (_gpu_group(job), _cpu_group(job)) if group]
    components = "\n#SBATCH hetjob\n".join(
        "\n".join(f"#SBATCH {option}" for option in (*_common(job), *group)) for group in groups
    )
    variables = {
        "ROLLYARD_BIN": programs,
        "ROLLYARD_DIRECTORY": job.fleet.directory,
        "ROLLYARD_SUBMIT_DIRECTORY": submit_directory,
    }
    lines = (f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    body = files("launch.slurm").joinpath("job.sh").read_text()
    return "\n".join(["#!/bin/bash", components, "", *lines, "", body])


def _common(job: SlurmJob) -> Sequence[str]:
    log = job.fleet.directory / JOB_LOG
    return (
        f"--job-name={job.name}",
        f"--output={log}",
        "--open-mode=append",  # also after the job was queued again
        "--ntasks-per-node=1",
        "--no-kill",  # the loss of a node is not the end of the others
        "--requeue" if job.requeue else "--no-requeue",
        f"--signal=B:USR1@{job.warning_seconds}",
        *((f"--time={job.time_limit}",) if job.time_limit else ()),
        *job.options,
    )


def _gpu_group(job: SlurmJob) -> Sequence[str]:
    if not job.gpu_nodes:
        return ()
    gpus = (f"--gres=gpu:{job.gpus_per_node}",) if job.gpus_per_node else ()
    return (f"--nodes={job.gpu_nodes}", *gpus, *job.gpu_options)


def _cpu_group(job: SlurmJob) -> Sequence[str]:
    return (f"--nodes={job.cpu_nodes}", *job.cpu_options) if job.cpu_nodes else ()
