"""What a fleet on Kubernetes is made from, and the plan that follows from it.

- A node of the fleet is a pod, whose name tells its part of the plan. Pods of StatefulSets keep
  their names, and names in the DNS that lead to them wherever they run.
- The head is a pod of its own, so that the plan does not change when nodes are added.
- Pods share no directory: each takes over the plan and the secrets from where they are mounted.
"""

import re
from pathlib import Path

import msgspec

from launch.fleet import FleetPlan, FleetSettings
from orchestrator.placement import FleetNode, place
from rollyard.errors import LaunchError

DIRECTORY = Path("/var/lib/rollyard")
"""Each pod's own directory."""
QUEUES = Path("/var/lib/rollyard-queues")
SOURCE = Path("/etc/rollyard")
"""Where the plan and the secrets are mounted."""
TLS = Path("/etc/rollyard-tls")
LLM_PYTHON = Path("/opt/vllm/bin/python")
"""The interpreter with vLLM in an image as docs/deploy.md makes it."""

HEAD, GPU, CPU = "head", "gpu", "cpu"
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?")


class PodRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What each pod of one kind asks of its machine."""

    cpus: str
    memory: str
    selector: dict[str, str] = {}
    """Labels of the machines on which it may run."""

    def __post_init__(self) -> None:
        for quantity in (self.cpus, self.memory):
            if not _QUANTITY.fullmatch(quantity):
                raise LaunchError(
                    f"{quantity!r} is no quantity of Kubernetes", fix="write it as 16, 500m or 64Gi"
                )


class VolumeClaim(msgspec.Struct, frozen=True):
    """A volume that is there, and where nodes find it."""

    name: str
    path: Path

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.name) or not self.path.is_absolute():
            raise LaunchError(
                f"{self.name}:{self.path} names no volume", fix="write it as models:/models"
            )


class KubernetesFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of pods."""

    fleet: FleetSettings
    image: str
    name: str = "rollyard"
    namespace: str = "default"
    cluster_domain: str = "cluster.local"
    gpu_nodes: int = 1
    gpus_per_node: int = 8
    cpu_nodes: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    gpu_room: PodRoom = PodRoom(cpus="16", memory="64Gi")
    cpu_room: PodRoom = PodRoom(cpus="16", memory="64Gi")
    queue_size: str = "20Gi"
    storage_class: str = ""
    """Storage class of the queues' volume; empty for the cluster's own choice."""
    claims: tuple[VolumeClaim, ...] = ()
    """Volumes that all nodes read."""
    secret: str = ""
    """The Secret with the tokens and Redis's password; empty for the fleet's name and -tokens."""
    tls_secret: str = ""
    """The Secret with the certificate of all services; empty to do without TLS."""
    privileged: bool = False
    """True to make sandboxes in privileged containers, instead of in pods with users of their
    own."""

    def __post_init__(self) -> None:
        for label in (self.name, self.namespace):
            if not _LABEL.fullmatch(label):
                raise LaunchError(
                    f"{label!r} is no name on Kubernetes",
                    fix="write up to 40 small letters, digits and dashes, a letter first",
                )
        if not _DOMAIN.fullmatch(self.cluster_domain):
            raise LaunchError(f"{self.cluster_domain!r} is no domain", fix="write cluster.local")
        if self.gpu_nodes < 0 or self.cpu_nodes < 0 or self.gpu_nodes + self.cpu_nodes < 1:
            raise LaunchError("a fleet needs at least one node")

    @property
    def secret_name(self) -> str:
        return self.secret or f"{self.name}-tokens"

    @property
    def service(self) -> str:
        """The Service that gives pods their names in the DNS."""
        return f"{self.name}-nodes"

    def kind(self, component: str) -> str:
        """Name of the StatefulSet of one kind of pods."""
        return f"{self.name}-{component}"

    def pods(self, component: str) -> tuple[str, ...]:
        counts = {HEAD: 1, GPU: self.gpu_nodes, CPU: self.cpu_nodes}
        return tuple(f"{self.kind(component)}-{i}" for i in range(counts[component]))

    def plan(self) -> FleetPlan:
        """The plan of the fleet. Raises `LaunchError`."""
        nodes = [FleetNode(name=name, gpus=self.gpus_per_node) for name in self.pods(GPU)]
        nodes += [FleetNode(name=name) for name in self.pods(CPU)]
        below = f"{self.service}.{self.namespace}.svc.{self.cluster_domain}"
        pods = (*self.pods(HEAD), *(node.name for node in nodes))
        return FleetPlan(
            settings=self.fleet,
            placement=place(nodes, tensor_parallel=self.fleet.tensor_parallel),
            addresses={pod: f"{pod}.{below}" for pod in pods},
        )
