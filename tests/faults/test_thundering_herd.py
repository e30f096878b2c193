"""Fault 19 of the fault catalogue in docs/reliability.md: all agent servers come at once.

256 of them register in the same moment, or come back, each in its own time, to an orchestrator that
was away: 99 of 100 wait less than 2 s for their answer, and everyone's Slots are there once.
"""

import asyncio
import random
import time
from typing import NamedTuple

import pytest

from benchmarks.http_wire import WireConnection
from chaos.observer import free_slots
from chaos.settings import HOST
from rollyard import codec
from rollyard.backoff import Backoff
from rollyard.messages import AgentServer
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled

SERVERS = 256
SLOTS = 16
MAX_SECONDS = 10.0
UNAVAILABLE = 503
PATIENCE = Backoff(first_seconds=0.1, max_seconds=1.0, total_seconds=60.0)
"""An agent server's own."""


class Registered(NamedTuple):
    began: float
    ended: float


async def register(port: int, number: int) -> Registered:
    """When the registration was asked for that was taken."""
    server = AgentServer(
        server_id=f"agent-{number}",
        url=f"http://{HOST}:9",
        slots=SLOTS,
        environments=("arithmetic",),
        incarnation=f"{number}",
    )
    for delay in PATIENCE.delays():
        began = time.perf_counter()
        try:
            status, _ = await WireConnection(HOST, port).post("/servers", codec.encode(server))
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(delay)
        else:
            if status == UNAVAILABLE:  # Redis is slower than it may be; the next time it knows us
                await asyncio.sleep(delay)
                continue
            assert status == 201
            return Registered(began, time.perf_counter())
    raise AssertionError("nobody answers")


async def herd(deployment: FaultDeployment) -> list[Registered]:
    (port,) = deployment.ports.orchestrators
    return await asyncio.gather(*(register(port, number) for number in range(SERVERS)))


async def herd_at_the_door(deployment: FaultDeployment) -> tuple[list[Registered], float]:
    """The orchestrator starts while everyone waits for it; with when it was up."""

    def start() -> float:
        deployment.cluster.start_orchestrator(0)
        return time.perf_counter()

    return await asyncio.gather(herd(deployment), asyncio.to_thread(start))


def p99(registered: list[Registered], up_at: float = 0.0) -> float:
    seconds = sorted(ended - max(began, up_at) for began, ended in registered)
    return seconds[len(seconds) * 99 // 100]


def slots_offered(deployment: FaultDeployment) -> list[str]:
    return sorted(free_slots(deployment.redis))


@pytest.mark.parametrize("seed", range(scaled(1, 5)))
def test_all_servers_register_within_seconds_when_they_come_at_once(
    make_deployment: MakeDeployment, seed: int
) -> None:
    # Nobody listens at their addresses, for which they would be knocked for after a tenth of it.
    deployment = make_deployment(agent_servers=0, lease_seconds=600.0)
    deployment.start_services()
    random.seed(seed)  # the backoff draws from it
    assert p99(asyncio.run(herd(deployment))) < MAX_SECONDS
    deployment.cluster.service("orchestrator-0").kill()
    assert p99(*asyncio.run(herd_at_the_door(deployment))) < MAX_SECONDS
    everything = {f"agent-{n}#{slot}" for n in range(SERVERS) for slot in range(SLOTS)}
    assert slots_offered(deployment) == sorted(everything)
