"""The reaper: who is silent, who could not be heard, and who has ended."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import pytest

from orchestrator.knocking import Knocking, nobody_listens
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

    def expire(self, looked_at: float | None = None, ended: Mapping[str, str] = {}) -> Look:
        try:
            if self.away:
                raise QueueUnavailable("Redis is away")
            return msgspec.structs.replace(super().expire(looked_at, ended), nap_seconds=0.0)
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


def none_has_ended(servers: Iterable[str]) -> set[str]:
    return set()


@pytest.fixture
def reap(queues: Queues, leases: ReapedLeases) -> Iterator[Callable[[], None]]:
    """Starts the reaper, which ends with the test."""
    stopping = threading.Event()
    reaper = Reaper(leases, queues.runs, none_has_ended)
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


@pytest.fixture
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket that nobody accepts from, as that of a process that stands still, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_has_ended_where_nobody_listens(
    queues: Queues, server: AgentServer, listening: tuple[socket.socket, str]
) -> None:
    listener, url = listening
    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1", url=url))
    knocking = Knocking(queues.servers, lease_seconds=30.0)
    names = {"agent-0", "agent-1", "never-registered"}
    assert knocking.ended(names) == {"agent-0"}
    listener.close()
    assert knocking.ended(names) == {"agent-0", "agent-1"}


def test_a_host_without_an_address_has_not_ended() -> None:
    assert not nobody_listens("http://nowhere.invalid:8006", seconds=1.0)


def test_only_an_overdue_server_is_knocked_for(
    queues: Queues, leases: ReapedLeases, server: AgentServer
) -> None:
    """Its Jobs need not wait for the end of its Lease."""
    asked: list[set[str]] = []
    stopping = threading.Event()

    def ended(servers: Iterable[str]) -> set[str]:
        asked.append(set(servers))
        stopping.set()
        return {"agent-1"}

    queues.servers.register(msgspec.structs.replace(server, server_id="agent-1"))
    reaper = Reaper(leases, queues.runs, ended)
    thread = threading.Thread(target=reaper.run, args=(stopping,), daemon=True)
    thread.start()
    while thread.is_alive():  # its first look counts both as heard of
        overdue(queues, "agent-1")
        thread.join(0.01)
    assert asked == [{"agent-1"}]
    assert queues.servers.registered() == [server]


def overdue(queues: Queues, server_id: str) -> None:
    """As if no heartbeat of the server had come for a fifth of a Lease."""
    seen = queues.connection.key("seen")
    at = queues.connection.do(lambda r: r.time())[0] - LEASE_SECONDS / 5
    queues.connection.do(lambda r: r.zadd(seen, {server_id: at}, xx=True))
