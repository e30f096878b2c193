"""`rollyard ray`: a fleet, and a trainer beside it, on a cluster of Ray that is there."""

from pathlib import Path
from typing import Annotated

import typer

from launch.engine_options import built
from launch.fleet import FleetSettings
from launch.plan_command import TensorParallel
from launch.processes import Processes
from launch.ray.machines import WantedMachines
from launch.ray.run import RayFleet, RayRun
from launch.service_options import FirstPort, LLMOnCpus, with_services
from launch.services import ServiceSettings
from launch.slurm.options import Queues, TrainerCommand, TrainerSeconds
from rollyard.api import DEFAULT_PORT
from rollyard.errors import LaunchError

DEFAULT_RAY_DIRECTORY = Path("rollyard-ray")

RayDirectory = Annotated[
    Path,
    typer.Option("--directory", help="Directory of the fleet, at the same path on every machine."),
]
RayAddress = Annotated[
    str, typer.Option("--address", help="Ray's cluster, as `ray.init` takes it.")
]
RayGpuNodes = Annotated[
    int | None,
    typer.Option(help="Machines with GPUs.  [default: all]", min=0, show_default=False),
]
RayGpusPerNode = Annotated[
    int | None,
    typer.Option(
        help="GPUs to reserve on each of them.  [default: all]", min=1, show_default=False
    ),
]
RayCpuNodes = Annotated[
    int | None,
    typer.Option(help="Machines without.  [default: all]", min=0, show_default=False),
]
RayCpus = Annotated[float, typer.Option(help="CPUs that Ray reserves on each machine.", min=0)]


@with_services
def chosen_fleet(
    *,
    services: ServiceSettings,
    tensor_parallel: TensorParallel = 1,
    port: FirstPort = DEFAULT_PORT,
    directory: RayDirectory = DEFAULT_RAY_DIRECTORY,
    queues: Queues = None,
    llm_on_cpus: LLMOnCpus = False,
) -> FleetSettings:
    directory = directory.resolve()
    return FleetSettings(
        **services.fields(),
        directory=directory,
        queues=directory / "redis" if queues is None else queues.resolve(),
        tensor_parallel=tensor_parallel,
        port=port,
        llm_on_cpus=llm_on_cpus,
    )


@built("fleet", chosen_fleet)
def ray_command(
    *,
    command: TrainerCommand = "",
    address: RayAddress = "auto",
    gpu_nodes: RayGpuNodes = None,
    gpus_per_node: RayGpusPerNode = None,
    cpu_nodes: RayCpuNodes = None,
    node_cpus: RayCpus = 1.0,
    trainer_seconds: TrainerSeconds = 60.0,
    fleet: FleetSettings,
) -> None:
    """Run a fleet on the machines of Ray's cluster, and a trainer beside it, until it ends."""
    try:
        from launch.ray.cluster import RayCluster
    except ModuleNotFoundError as error:
        raise LaunchError(
            f"there is no {error.name} here", fix="install it with `pip install 'rollyard[ray]'`"
        ) from error
    wanted = WantedMachines(gpu_nodes=gpu_nodes, gpus_per_node=gpus_per_node, cpu_nodes=cpu_nodes)
    asked = RayFleet(fleet=fleet, wanted=wanted, command=command, trainer_seconds=trainer_seconds)
    with RayCluster(address, node_cpus) as cluster, Processes() as processes:
        run = RayRun(asked, cluster, processes)
        try:
            code = run.work()
        finally:
            run.stop()
    raise typer.Exit(code)
