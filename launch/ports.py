"""Ports of a deployment, and the holder of one that is taken."""

import contextlib
import socket
from collections.abc import Mapping

import msgspec
import psutil

from rollyard.errors import LaunchError
from serving.every_address import EVERY_ADDRESS

HOST = "127.0.0.1"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Ports: one for each process, and one for each ProRL door."""

    orchestrator: int
    redis: int
    llm_node: int
    llm_servers: tuple[int, ...]
    agent_servers: tuple[int, ...]
    llm_proxy: int | None = None
    """None if agent servers ask the LLM servers themselves."""
    doors: tuple[int, ...] = ()
    """Ports of the agent servers' ProRL doors; empty if these stay shut."""

    def named(self) -> dict[str, int]:
        """Process name -> port."""
        return {
            "orchestrator": self.orchestrator,
            "redis": self.redis,
            "llm-node": self.llm_node,
            **{f"llm-{i}": port for i, port in enumerate(self.llm_servers)},
            **({} if self.llm_proxy is None else {"llm-proxy": self.llm_proxy}),
            **{f"agent-{i}": port for i, port in enumerate(self.agent_servers)},
            **{f"the ProRL door of agent-{i}": port for i, port in enumerate(self.doors)},
        }


def default_ports(
    first: int, agent_servers: int, llm_servers: int, *, doors: int = 0, llm_proxy: bool = False
) -> Ports:
    """Consecutive ports from `first`: the orchestrator's, those of ProRL doors, the agent servers',
    then the rest."""
    agents = first + 1 + doors
    rest = agents + agent_servers
    end = rest + 2 + llm_servers
    ports = Ports(
        orchestrator=first,
        doors=tuple(range(first + 1, agents)),
        agent_servers=tuple(range(agents, rest)),
        redis=rest,
        llm_node=rest + 1,
        llm_servers=tuple(range(rest + 2, end)),
        llm_proxy=end if llm_proxy else None,
    )
    check_exist(ports.named())
    return ports


def check_exist(ports: Mapping[str, int]) -> None:
    """Raise `LaunchError` if a port of these is beyond the highest."""
    lowest, highest = min(ports.values()), max(ports.values())
    if lowest < 1 or highest > 65535:
        raise LaunchError(
            f"ports {lowest} to {highest} do not exist", fix="use ports between 1 and 65535"
        )


def check_own(host: str) -> None:
    """Raise `LaunchError` unless services of this machine can listen on `host`, and be called by
    it."""
    if host in EVERY_ADDRESS:
        raise LaunchError(
            f"services cannot be called at {host}",
            fix="give --host the address or name by which other machines call this one",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, 0), family=family).close()
    except OSError as error:
        raise LaunchError(
            f"{host} is not this machine: {error.strerror or error}",
            fix="give --host an address that this machine has, or a name of it",
        ) from error


def is_free(port: int, host: str = HOST) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
        return True
    return False


def check_free(ports: Mapping[str, int], host: str = HOST) -> None:
    """Raise `LaunchError` for the first port that is taken, naming its holder."""
    for name, port in ports.items():
        if not is_free(port, host):
            raise LaunchError(
                f"port {port} on {host}, wanted for {name}, is taken{_holder(port)}",
                fix="stop that process, or give this one other ports with --port",
            )


def _holder(port: int) -> str:
    """ " by pid N (command)", where the system lets us know."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr[-1:] == (port,) and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f" by pid {connection.pid} ({command[:120]})"
    return ""
