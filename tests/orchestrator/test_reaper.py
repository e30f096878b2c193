"""The reaper: who is silent, and who could not be heard."""

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from orchestrator.loops import run_through_outages
from orchestrator.queues import Queues
from orchestrator.queues.leases import Leases, Look
from orchestrator.reaper import Reaper
from rollyard.errors import QueueUnavailable
from rollyard.messages import AgentServer
from tests.queue_fixtures import QueueMaker

LEASE_SECONDS = 30.0


class ReapedLeases(Leases):
    """Leases that tell how often they were reaped, and may be out of reach."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(queues.connection, queues.runs, LEASE_SECONDS)
        self.away = False
        self.reaped = threading.Semaphore(0)

    def expire(self, looked_at: float | None = None) -> Look:
        try:
            if self.away:
                raise QueueUnavailable("Redis is away")
            return msgspec.structs.replace(super().expire(looked_at), nap_seconds=0.0)
        finally:
            self.reaped.release()


@pytest.fixture
def queues(make_queues: QueueMaker, server: AgentServer) -> Queues:
    """One server has registered."""
    queues = make_queues(Queues, lease_seconds=LEASE_SECONDS)
    queues.servers.register(server)
    return queues


@pytest.fixture
def leases(queues: Queues) -> ReapedLeases:
    return ReapedLeases(queues)


@pytest.fixture
def reap(queues: Queues, leases: ReapedLeases) -> Iterator[Callable[[], None]]:
    """Starts the reaper, which ends with the test."""
    stopping = threading.Event()
    reaper = Reaper(leases, queues.runs)
    yield threading.Thread(
        target=run_through_outages, args=(reaper.run, stopping), daemon=True
    ).start
    stopping.set()


def silence(queues: Queues, server: AgentServer) -> None:
    """As if the server had not been heard of for longer than a Lease."""
    seen = queues.connection.key("seen")
    queues.connection.do(lambda r: r.zadd(seen, {server.server_id: 0.0}))


def wait_for_a_reaping(leases: ReapedLeases) -> None:
    """Until one that began after now has ended."""
    while leases.reaped.acquire(blocking=False):
        pass
    assert all(leases.reaped.acquire(timeout=10) for _ in range(2))


def test_a_restarted_orchestrator_lets_servers_be_heard_first(
    queues: Queues, leases: ReapedLeases, reap: Callable[[], None], server: AgentServer
) -> None:
    silence(queues, server)
    reap()
    wait_for_a_reaping(leases)
    assert queues.servers.registered() == [server]
    silence(queues, server)
    wait_for_a_reaping(leases)
    assert queues.servers.registered() == []


def test_an_outage_of_redis_silences_nobody(
    queues: Queues, leases: ReapedLeases, reap: Callable[[], None], server: AgentServer
) -> None:
    reap()
    leases.away = True
    wait_for_a_reaping(leases)
    silence(queues, server)
    leases.away = False
    wait_for_a_reaping(leases)
    assert queues.servers.registered() == [server]
