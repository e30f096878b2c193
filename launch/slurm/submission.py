"""Submitting a job: its settings and its script in its directory, then `sbatch`.

A directory has one job at a time, since its Redis has one set of files.
"""

import sys
from pathlib import Path

from launch.documents import write_document
from launch.local import check_parts
from launch.slurm.allocation import slurm
from launch.slurm.render import batch_script
from launch.slurm.settings import JOB_ID, SCRIPT, SETTINGS, SlurmJob
from rollyard.errors import LaunchError
from rollyard.messages import Message


class Submitted(Message, frozen=True):
    """A job that waits in Slurm's queue."""

    job_id: str
    directory: str


def rendered(job: SlurmJob) -> str:
    """The job's script, for the Python and the directory from which it is submitted."""
    return batch_script(job, programs=Path(sys.executable).parent, submit_directory=Path.cwd())


def submit(job: SlurmJob) -> Submitted:
    """Submit the job. Raises `LaunchError`, also for one whose directory has a job already."""
    check_parts(job.fleet.model, job.fleet.engine)
    directory = job.fleet.directory
    if state := queue_state(directory):
        raise LaunchError(
            f"{directory} has a job already: {submitted_id(directory)} is {state.lower()}",
            fix="cancel that one with scancel, or give this one a --directory of its own",
        )
    directory.mkdir(parents=True, exist_ok=True)
    write_document(directory / SETTINGS, job)
    script = directory / SCRIPT
    script.write_text(rendered(job))
    job_id = slurm("sbatch", "--parsable", str(script)).strip().partition(";")[0]
    (directory / JOB_ID).write_text(job_id + "\n")
    return Submitted(job_id=job_id, directory=str(directory))


def submitted_id(directory: Path) -> str:
    """The id of the directory's last job; empty if there was none."""
    path = directory / JOB_ID
    return path.read_text().strip() if path.exists() else ""


def queue_state(directory: Path) -> str:
    """What Slurm's queue says of the directory's job; empty if it is over."""
    job_id = submitted_id(directory)
    if not job_id:
        return ""
    listed = slurm("squeue", "--noheader", "--format=%i %T", "--me").splitlines()
    # The components of a heterogeneous job are listed as 12+0 and 12+1.
    states = (line.split() for line in listed)
    return next((state for each, state in states if each.partition("+")[0] == job_id), "")
