"""Command-line options of a job of Slurm, for every command that makes one."""

from pathlib import Path
from typing import Annotated

import typer

from launch.engine_options import built
from launch.fleet import FleetSettings
from launch.plan_command import TensorParallel
from launch.service_options import FirstPort, LLMOnCpus, with_services, with_services_alone
from launch.services import ServiceSettings
from launch.slurm.beside import SANDBOX_PORT, BesideJob
from launch.slurm.settings import SlurmJob
from launch.tls_options import TLSChoice, with_tls
from rollyard.api import DEFAULT_PORT

DEFAULT_SLURM_DIRECTORY = Path("rollyard-slurm")

JobDirectory = Annotated[
    Path,
    typer.Option(
        "--directory", help="Directory of the job, on a file system that all nodes share."
    ),
]
TrainerCommand = Annotated[
    str,
    typer.Option(
        "--command",
        help="The trainer, a command of the shell; the job ends when it does.  [default: none, and "
        "the job serves until it is cancelled]",
        show_default=False,
    ),
]
GpuNodes = Annotated[int, typer.Option(help="Number of nodes with GPUs.", min=0)]
GpusPerNode = Annotated[int, typer.Option(help="Number of GPUs on each of them.", min=0)]
CpuNodes = Annotated[int, typer.Option(help="Number of nodes without GPUs.", min=0)]
Queues = Annotated[
    Path | None,
    typer.Option(
        help="Directory of Redis's data.  [default: redis in the job's directory]",
        show_default=False,
    ),
]
TimeLimit = Annotated[
    str, typer.Option("--time", help="The job's time, as sbatch takes it.", show_default=False)
]
WarningSeconds = Annotated[
    int, typer.Option(help="Seconds before the end of its time at which the job leaves.", min=0)
]
TrainerSeconds = Annotated[
    float, typer.Option(help="Seconds that the trainer has to end after a SIGTERM.", min=0)
]
SbatchOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch", help="Further option of sbatch, for all nodes; repeat.", show_default=False
    ),
]
GpuOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-sbatch",
        help="The same for the nodes with GPUs, such as --partition=gpu.",
        show_default=False,
    ),
]
CpuOptions = Annotated[
    list[str] | None,
    typer.Option("--cpu-sbatch", help="The same for the other nodes.", show_default=False),
]


SandboxPort = Annotated[
    int, typer.Option(help="Port that opens on a node once all is ready there.", min=1)
]
BESIDE_PORT = 6001
"""The first of the ports that NeMo-RL leaves to what serves a sandbox."""


@with_tls
@with_services
def chosen_fleet(
    *,
    services: ServiceSettings,
    tls: TLSChoice,
    tensor_parallel: TensorParallel = 1,
    port: FirstPort = DEFAULT_PORT,
    directory: JobDirectory = DEFAULT_SLURM_DIRECTORY,
    queues: Queues = None,
    llm_on_cpus: LLMOnCpus = False,
) -> FleetSettings:
    directory = directory.resolve()
    return FleetSettings(
        **{**services.fields(), "tls": tls.of(directory)},
        directory=directory,
        queues=directory / "redis" if queues is None else queues.resolve(),
        tensor_parallel=tensor_parallel,
        port=port,
        llm_on_cpus=llm_on_cpus,
    )


@with_tls
@with_services_alone
def chosen_beside(
    *,
    services: ServiceSettings,
    tls: TLSChoice,
    port: FirstPort = BESIDE_PORT,
    sandbox_port: SandboxPort = SANDBOX_PORT,
    directory: JobDirectory = DEFAULT_SLURM_DIRECTORY,
    queues: Queues = None,
) -> BesideJob:
    directory = directory.resolve()
    fleet = FleetSettings(
        **{**services.fields(), "tls": tls.of(directory)},
        directory=directory,
        queues=directory / "redis" if queues is None else queues.resolve(),
        port=port,
    )
    return BesideJob(fleet=fleet, sandbox_port=sandbox_port)


@built("fleet", chosen_fleet)
def chosen_job(
    *,
    command: TrainerCommand = "",
    gpu_nodes: GpuNodes = 1,
    gpus_per_node: GpusPerNode = 8,
    cpu_nodes: CpuNodes = 0,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "rollyard",
    time: TimeLimit = "",
    warning_seconds: WarningSeconds = 120,
    trainer_seconds: TrainerSeconds = 60.0,
    requeue: Annotated[
        bool, typer.Option(help="Queue the job again when its time is over or its head is lost.")
    ] = True,
    sbatch: SbatchOptions = None,
    gpu_sbatch: GpuOptions = None,
    cpu_sbatch: CpuOptions = None,
    fleet: FleetSettings,
) -> SlurmJob:
    return SlurmJob(
        fleet=fleet,
        command=command,
        name=name,
        gpu_nodes=gpu_nodes,
        gpus_per_node=gpus_per_node,
        cpu_nodes=cpu_nodes,
        time_limit=time,
        warning_seconds=warning_seconds,
        trainer_seconds=trainer_seconds,
        requeue=requeue,
        options=tuple(sbatch or ()),
        gpu_options=tuple(gpu_sbatch or ()),
        cpu_options=tuple(cpu_sbatch or ()),
    )
