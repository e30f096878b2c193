"""`rollyard slurm submit | render | beside | status | logs | run | beside-node`."""

import os
import sys
from typing import Annotated

import typer

from launch.engine_options import built
from launch.output import Json, show
from launch.slurm.beside import BesideJob, keep_beside, own_task, read_beside
from launch.slurm.exports import prepare_beside
from launch.slurm.job import run_job
from launch.slurm.options import (
    DEFAULT_SLURM_DIRECTORY,
    JobDirectory,
    chosen_beside,
    chosen_job,
)
from launch.slurm.settings import SlurmJob, read_job
from launch.slurm.submission import rendered, submit
from launch.slurm.view import last_lines, state_of

commands = typer.Typer(
    help="Run Rollyard, and a trainer beside it, as a job of Slurm.", no_args_is_help=True
)


@commands.command("submit")
@built("job", chosen_job)
def submit_command(*, job: SlurmJob, json: Json = False) -> None:
    """Submit a job: it starts every part on its nodes, runs the trainer, and ends with it."""
    submitted = submit(job)
    show(submitted, [f"submitted as job {submitted.job_id}, in {submitted.directory}"], json=json)


@commands.command("render")
@built("job", chosen_job)
def render_command(*, job: SlurmJob) -> None:
    """Print the batch script of a job without submitting it."""
    sys.stdout.write(rendered(job))


@commands.command("beside")
@built("job", chosen_beside)
def beside_command(
    *,
    job: BesideJob,
    container: Annotated[
        str, typer.Option(help="Image of the containers in which it runs, as SANDBOX_CONTAINER.")
    ],
) -> None:
    """Print the variables with which NeMo-RL's ray.sub starts Rollyard on its nodes."""
    sys.stdout.write(prepare_beside(job, container))


@commands.command("status")
def status_command(directory: JobDirectory = DEFAULT_SLURM_DIRECTORY, json: Json = False) -> None:
    """Show how a job and the processes of its nodes are."""
    state = state_of(directory.resolve())
    show(state, state.shown(), json=json)


@commands.command("logs")
def logs_command(
    directory: JobDirectory = DEFAULT_SLURM_DIRECTORY,
    lines: Annotated[int, typer.Option(help="Lines of each log.", min=1)] = 20,
) -> None:
    """Show the end of every log of a job: one file for each process of each node."""
    for path, text in last_lines(directory.resolve(), lines):
        sys.stdout.write(f"==> {path} <==\n{text}\n")


@commands.command("run", hidden=True)
def run_command(directory: JobDirectory = DEFAULT_SLURM_DIRECTORY) -> None:
    """Run the job that this is the batch step of."""
    raise typer.Exit(run_job(read_job(directory.resolve())))


@commands.command("beside-node", hidden=True)
def beside_node_command(directory: JobDirectory = DEFAULT_SLURM_DIRECTORY) -> None:
    """Run the part of this node, as the batch script of others told each node to."""
    keep_beside(read_beside(directory.resolve()), own_task(os.environ))
