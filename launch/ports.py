"""Ports: choosing free ones, and naming the holder of a taken one."""

import contextlib
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import psutil

from rollyard.errors import LaunchError
from serving.every_address import EVERY_ADDRESS

if TYPE_CHECKING:
    from launch.plan import Ports

HOST = "127.0.0.1"
POOL = range(20_000, 30_000)
"""Ports to choose free ones from, below the system's range of ephemeral ports."""


def default_ports(
    first: int, agent_servers: int, llm_servers: int, *, doors: int = 0, llm_proxy: bool = False
) -> "Ports":
    """Consecutive ports from `first`: the orchestrator's, those of ProRL doors, the agent servers',
    then the rest."""
    # Who only chooses free ports, as tests in the trainer's environment do, needs no services.
    from launch.plan import Ports

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


def free_ports(agent_servers: int, llm_servers: int) -> "Ports":
    """Consecutive ports that are free now."""
    first = free_range(3 + agent_servers + llm_servers).start
    return default_ports(first, agent_servers, llm_servers)


def free_port() -> int:
    return free_range(1).start


def free_range(count: int) -> range:
    """Consecutive ports of the pool that are free now."""
    for _ in range(100):
        first = POOL.start + secrets.randbelow(len(POOL) - count)
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports):
            return ports
    raise LaunchError(f"found no free ports between {POOL.start} and {POOL.stop} on {HOST}")


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


def check_free(ports: Mapping[str, int], host: str = HOST) -> None:
    """Raise `LaunchError` for the first port that is taken, naming its holder."""
    for name, port in ports.items():
        if not _is_free(port, host):
            raise LaunchError(
                f"port {port} on {host}, wanted for {name}, is taken{_holder(port)}",
                fix="stop that process, or give this one other ports with --port",
            )


def _is_free(port: int, host: str = HOST) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
        return True
    return False


def _holder(port: int) -> str:
    """ " by pid N (command)", where the system lets us know."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr[-1:] == (port,) and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f" by pid {connection.pid} ({command[:120]})"
    return ""
