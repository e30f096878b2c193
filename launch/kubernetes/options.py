"""Command-line options of a fleet on Kubernetes."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from launch.demo import POLICY
from launch.deployment_tls import DeploymentTLS
from launch.engine_options import built
from launch.fleet import FleetSettings
from launch.fleet_files import PACKAGES
from launch.kubernetes.recipe import (
    DIRECTORY,
    LLM_PYTHON,
    QUEUES,
    TLS,
    KubernetesFleet,
    PodRoom,
    VolumeClaim,
)
from launch.plan_command import TensorParallel
from launch.service_options import FirstPort, LLMOnCpus, with_services
from launch.services import ServiceSettings
from launch.slurm.options import CpuNodes, GpuNodes, GpusPerNode
from launch.vllm_environment import DEFAULT_LLM_PYTHON
from rollyard.api import DEFAULT_PORT
from rollyard.errors import LaunchError

FleetName = Annotated[
    str, typer.Option("--name", help="Name of the fleet, with which those of all objects begin.")
]
Namespace = Annotated[str, typer.Option(help="Namespace of all objects.")]
SecretName = Annotated[
    str,
    typer.Option(
        "--secret",
        help="Secret with the tokens and Redis's password.  [default: the fleet's name, -tokens]",
        show_default=False,
    ),
]
Image = Annotated[
    str, typer.Option(help="Image of all containers (docs/deploy.md).", show_default=False)
]
Claims = Annotated[
    list[str] | None,
    typer.Option(
        "--claim",
        metavar="NAME:PATH",
        help="A PersistentVolumeClaim that is there, and where all nodes read it; repeat.",
        show_default=False,
    ),
]
StorageClass = Annotated[
    str,
    typer.Option(
        help="Storage class of the queues' volume.  [default: the cluster's]", show_default=False
    ),
]
Selectors = list[str] | None
GpuSelector = Annotated[
    Selectors,
    typer.Option(
        metavar="KEY=VALUE",
        help="Label of the machines for pods with GPUs; repeat.",
        show_default=False,
    ),
]
CpuSelector = Annotated[
    Selectors,
    typer.Option(
        metavar="KEY=VALUE", help="The same for the other pods; repeat.", show_default=False
    ),
]
TLSSecret = Annotated[
    str,
    typer.Option(
        help="Secret with the certificate of all services: tls.crt, tls.key and ca.crt.  "
        "[default: no TLS]",
        show_default=False,
    ),
]
Privileged = Annotated[
    bool,
    typer.Option(
        "--privileged",
        help="Make sandboxes in privileged containers, where pods cannot have users of their own.",
    ),
]


@with_services
def chosen_fleet(
    *,
    services: ServiceSettings,
    tensor_parallel: TensorParallel = 1,
    port: FirstPort = DEFAULT_PORT,
    llm_on_cpus: LLMOnCpus = False,
    tls_secret: TLSSecret = "",
) -> tuple[FleetSettings, str]:
    """The settings of all pods, whose paths are those in their containers."""
    certificate = DeploymentTLS(
        certificate=TLS / "tls.crt", key=TLS / "tls.key", ca_file=TLS / "ca.crt"
    )
    settings = FleetSettings(
        **{**services.fields(), "tls": certificate if tls_secret else None},
        directory=DIRECTORY,
        queues=QUEUES / "redis",
        tensor_parallel=tensor_parallel,
        port=port,
        llm_on_cpus=llm_on_cpus,
    )
    return in_containers(settings), tls_secret


def in_containers(settings: FleetSettings) -> FleetSettings:
    """The settings with what comes along where it is in the image, not where it is here."""
    engine = settings.engine
    if engine.python == DEFAULT_LLM_PYTHON:
        engine = msgspec.structs.replace(engine, python=LLM_PYTHON)
    own = settings.model == POLICY
    model = POLICY.relative_to(PACKAGES) if own else settings.model
    return msgspec.structs.replace(settings, engine=engine, model=model)


@built("fleet", chosen_fleet)
def chosen_recipe(
    *,
    image: Image,
    fleet: tuple[FleetSettings, str],
    name: FleetName = "rollyard",
    namespace: Namespace = "default",
    cluster_domain: Annotated[str, typer.Option(help="Domain of the cluster's DNS.")] = (
        "cluster.local"
    ),
    secret: SecretName = "",
    gpu_nodes: GpuNodes = 1,
    gpus_per_node: GpusPerNode = 8,
    gpu_resource: Annotated[
        str, typer.Option(help="What the cluster calls a GPU.")
    ] = "nvidia.com/gpu",
    gpu_node_cpus: Annotated[str, typer.Option(help="CPUs of each pod with GPUs.")] = "16",
    gpu_node_memory: Annotated[str, typer.Option(help="Memory of each.")] = "64Gi",
    gpu_selector: GpuSelector = None,
    cpu_nodes: CpuNodes = 0,
    cpu_node_cpus: Annotated[str, typer.Option(help="CPUs of each other pod.")] = "16",
    cpu_node_memory: Annotated[str, typer.Option(help="Memory of each.")] = "64Gi",
    cpu_selector: CpuSelector = None,
    storage_class: StorageClass = "",
    queue_size: Annotated[str, typer.Option(help="Size of the queues' volume.")] = "20Gi",
    claim: Claims = None,
    privileged: Privileged = False,
) -> KubernetesFleet:
    settings, tls_secret = fleet
    return KubernetesFleet(
        fleet=settings,
        image=image,
        name=name,
        namespace=namespace,
        cluster_domain=cluster_domain,
        secret=secret,
        gpu_nodes=gpu_nodes,
        gpus_per_node=gpus_per_node,
        cpu_nodes=cpu_nodes,
        gpu_resource=gpu_resource,
        gpu_room=PodRoom(cpus=gpu_node_cpus, memory=gpu_node_memory, selector=_pairs(gpu_selector)),
        cpu_room=PodRoom(cpus=cpu_node_cpus, memory=cpu_node_memory, selector=_pairs(cpu_selector)),
        storage_class=storage_class,
        queue_size=queue_size,
        claims=tuple(_claim(each) for each in claim or ()),
        tls_secret=tls_secret,
        privileged=privileged,
    )


def _pairs(selectors: Selectors) -> dict[str, str]:
    pairs = [each.partition("=") for each in selectors or ()]
    if wrong := [key for key, sign, _ in pairs if not key or not sign]:
        raise LaunchError(f"{wrong[0]!r} is no label and its value", fix="write it as KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _claim(text: str) -> VolumeClaim:
    name, _, path = text.partition(":")
    return VolumeClaim(name, Path(path))
