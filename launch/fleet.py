"""A fleet of several nodes: its settings, its placement, and where each part listens.

- The first node is the head, which has Redis and the orchestrator.
- All nodes use the same ports, each on its own address; Redis listens on the head's loopback.
- LLM servers let everyone in who reaches them: they listen on loopback, unless the fleet's settings
  say that its network may reach them.
- What all nodes read, and write for each other, is in one directory that all of them share.
"""

from ipaddress import ip_address
from pathlib import Path

import msgspec

from launch.documents import read_document, write_document
from launch.engine import Engine
from orchestrator.placement import PlacedLLM, Placement
from rollyard.api import DEFAULT_PORT
from rollyard.errors import LaunchError
from serving.log_format import LogFormat

FLEET = "fleet.json"
DOORS = "PRORL_SERVER_URLS"
"""The variable in which clients of ProRL's agent server expect the doors."""
LOOPBACK = "127.0.0.1"


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same on all nodes."""

    model: Path
    directory: Path
    """Directory that all nodes share: tokens, logs, and whatever one of them tells the others."""
    queues: Path
    """Directory of Redis's data on the head. It must outlive the head to survive its loss."""
    engine: Engine = Engine()
    tensor_parallel: int = 1
    slots: int = 16
    """Slots of each agent server."""
    port: int = DEFAULT_PORT
    """Port of the orchestrator; other processes take the next ones."""
    llm_on_cpus: bool = False
    """True to have LLM servers compute on the CPUs of the nodes that have GPUs."""
    insecure_llm: bool = False
    """True if LLM servers may listen beyond loopback, where they let in everyone."""
    stop_tokens: tuple[str, ...] = ()
    tool_calls: str = ""
    tags: tuple[str, ...] = ()
    repositories: Path | None = None
    images: Path | None = None
    log_format: LogFormat = LogFormat.TEXT

    @property
    def token_file(self) -> Path:
        return self.directory / "tokens"

    @property
    def redis_password_file(self) -> Path:
        return self.directory / "redis-password"

    def directory_of(self, node: str) -> Path:
        """Directory of what one node writes: its logs, and how its processes are."""
        return self.directory / "nodes" / node


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a fleet, and what each of them is for."""

    settings: FleetSettings
    placement: Placement
    addresses: dict[str, str]
    """Node -> its IP address, for all nodes that the fleet ever had. The first is the head."""

    @property
    def head(self) -> str:
        return next(iter(self.addresses))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have a place, in their order."""
        return tuple(agents.node for agents in self.placement.agent_servers)

    @property
    def orchestrator_url(self) -> str:
        return url_of(self.addresses[self.head], self.settings.port)

    def environment(self) -> dict[str, str]:
        """Variables with which a trainer finds the fleet."""
        doors = (url_of(self.addresses[node], self.settings.port + 1) for node in self.nodes)
        return {
            "ROLLYARD_URL": self.orchestrator_url,
            "ROLLYARD_TOKEN_FILE": str(self.settings.token_file),
            DOORS: "+".join(doors),
        }

    def llm_urls(self, node: str) -> tuple[str, ...]:
        """URLs of the LLM servers that the node's agent server asks."""
        placed = {server.name: server for server in self.placement.llm_servers}
        (agents,) = (each for each in self.placement.agent_servers if each.node == node)
        return tuple(self._llm_url(placed[name], node) for name in agents.llm_servers)

    def llm_host(self, node: str) -> str:
        """The address on which LLM servers of the node listen."""
        return self.addresses[node] if self._llm_is_reachable(node) else LOOPBACK

    def llm_port(self, server: PlacedLLM) -> int:
        return self.settings.port + 5 + int(server.name.rpartition("-")[2])

    def _llm_is_reachable(self, node: str) -> bool:
        """Whether other nodes reach the LLM servers of this one; on one machine all do."""
        return self.settings.insecure_llm or ip_address(self.addresses[node]).is_loopback

    def _llm_url(self, server: PlacedLLM, seen_from: str) -> str:
        if server.node != seen_from and not self._llm_is_reachable(server.node):
            raise LaunchError(
                f"{seen_from} is to ask {server.name}, which listens on the loopback of its node "
                "because LLM servers let in everyone who reaches them",
                fix="give --insecure-llm if only trusted users reach the nodes' network, or leave "
                "out the nodes without GPUs",
            )
        return url_of(self.llm_host(server.node), self.llm_port(server))


def read_fleet(directory: Path) -> FleetPlan:
    """The fleet whose nodes share `directory`. Raises `LaunchError`."""
    fix = "name the directory that the fleet's launcher has written to with --directory"
    return read_document(directory / FLEET, FleetPlan, fix=fix)


def write_fleet(fleet: FleetPlan) -> None:
    write_document(fleet.settings.directory / FLEET, fleet)


def check_llm_servers(fleet: FleetPlan) -> None:
    """Raise `LaunchError` if an agent server could not reach an LLM server that it is to ask."""
    for node in fleet.nodes:
        fleet.llm_urls(node)


def url_of(address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"
