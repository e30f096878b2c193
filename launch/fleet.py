"""A fleet of several nodes: its settings, its placement, and where each part listens.

- The first node is the head, which has Redis and the orchestrator.
- All nodes use the same ports, each on its own address; Redis listens on the head's loopback.
- LLM servers let everyone in who reaches them: they listen on loopback. Agent servers ask the
  proxies before them, which admit the fleet's tokens alone.
- What all nodes read, and write for each other, is in one directory that all of them share; or each
  has one of its own, into which it takes over the plan and the secrets.
"""

from collections import Counter
from ipaddress import ip_address
from pathlib import Path

import msgspec

from launch.documents import read_document, write_document
from launch.llm_processes import LOOPBACK, url_of
from launch.services import ServiceSettings
from orchestrator.placement import Placement
from rollyard.api import DEFAULT_PORT
from rollyard.trust import CA_FILE_VARIABLE

FLEET = "fleet.json"
TOKENS = "tokens"
REDIS_PASSWORD = "redis-password"  # noqa: S105 - the name of a file
DOORS = "PRORL_SERVER_URLS"
"""The variable in which clients of ProRL's agent server expect the doors."""


class FleetSettings(ServiceSettings, frozen=True, kw_only=True):
    """What is the same on all nodes."""

    directory: Path
    """Directory of every node: tokens, logs, and, where they share it, whatever one of them tells
    the others."""
    queues: Path
    """Directory of Redis's data on the head. It must outlive the head to survive its loss."""
    tensor_parallel: int = 1
    port: int = DEFAULT_PORT
    """Port of the orchestrator; other processes take the next ones."""
    llm_on_cpus: bool = False
    """True to have LLM servers compute on the CPUs of the nodes that have GPUs."""

    @property
    def token_file(self) -> Path:
        return self.directory / TOKENS

    @property
    def redis_password_file(self) -> Path:
        return self.directory / REDIS_PASSWORD

    def directory_of(self, node: str) -> Path:
        """Directory of what one node writes: its logs, and how its processes are."""
        return self.directory / "nodes" / node


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a fleet, and what each of them is for."""

    settings: FleetSettings
    placement: Placement
    addresses: dict[str, str]
    """Node -> its IP address, or the name by which the others find it, for all nodes that the fleet
    ever had. The first is the head."""
    life: str = ""
    """Which life of which job it is planned for; empty where nobody waits for the plan."""
    absent: tuple[str, ...] = ()
    """Nodes that are away: nobody asks their LLM servers until they are heard of again."""

    @property
    def head(self) -> str:
        return next(iter(self.addresses))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have a place, in their order."""
        return tuple(agents.node for agents in self.placement.agent_servers)

    @property
    def orchestrator_url(self) -> str:
        return self._url_of(self.head, self.settings.port)

    def environment(self) -> dict[str, str]:
        """Variables with which a trainer finds the fleet."""
        doors = (self._url_of(node, self.settings.port + 1) for node in self.nodes)
        tls = self.settings.tls
        ca_file = None if tls is None else tls.ca_file
        return {
            "ROLLYARD_URL": self.orchestrator_url,
            "ROLLYARD_TOKEN_FILE": str(self.settings.token_file),
            DOORS: "+".join(doors),
            **({} if ca_file is None else {CA_FILE_VARIABLE: str(ca_file)}),
        }

    def proxies_of(self, node: str) -> dict[str, int]:
        """URLs of the proxies that the node's agent server asks, with the number of LLM servers
        behind each that it shares."""
        at = {server.name: server.node for server in self.placement.llm_servers}
        (agents,) = (each for each in self.placement.agent_servers if each.node == node)
        shared = Counter(at[name] for name in agents.llm_servers)
        return {self.proxy_url(each): count for each, count in shared.items()}

    def proxy_url(self, node: str) -> str:
        """URL of the proxy before the LLM servers of the node."""
        return self._url_of(node, self.settings.port + 5)

    def agent_url(self, node: str) -> str:
        return self._url_of(node, self.settings.port + 2)

    def _url_of(self, node: str, port: int) -> str:
        return url_of(self.addresses[node], port, tls=self.settings.tls is not None)

    def llm_host(self, node: str) -> str:
        """The loopback address on which LLM servers of the node listen: where several nodes share a
        machine, each has its own."""
        address = self.addresses[node]
        return address if is_address(address) and ip_address(address).is_loopback else LOOPBACK


def is_address(host: str) -> bool:
    """Whether it is an IP address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_fleet(directory: Path) -> FleetPlan:
    """The fleet whose nodes share `directory`. Raises `LaunchError`."""
    fix = "name the directory that the fleet's launcher has written to with --directory"
    return read_document(directory / FLEET, FleetPlan, fix=fix)


def write_fleet(fleet: FleetPlan) -> None:
    write_document(fleet.settings.directory / FLEET, fleet)
