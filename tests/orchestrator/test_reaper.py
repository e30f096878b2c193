"""The reaper: who is silent, and who could not be heard."""

import threading
from collections.abc import Callable

import pytest

from orchestrator.queues.memory_queues import MemoryQueues
from orchestrator.reaper import Reaper
from rollyard.errors import QueueUnavailable
from rollyard.messages import AgentServer

LEASE_SECONDS = 30.0


class ReapedQueues(MemoryQueues):
    """Queues with a clock of their own, which tell how often they were reaped."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lease_seconds=LEASE_SECONDS, clock=lambda: self.now)
        self.away = False
        self.reaped = threading.Semaphore(0)

    def expire(self) -> float:
        try:
            if self.away:
                raise QueueUnavailable("Redis is away")
            super().expire()
            return 0.0
        finally:
            self.reaped.release()


@pytest.fixture
def reap() -> Callable[[ReapedQueues], threading.Event]:
    def start(queues: ReapedQueues) -> threading.Event:
        stopping = threading.Event()
        threading.Thread(target=Reaper(queues).run, args=(stopping,), daemon=True).start()
        return stopping

    return start


def wait_for_a_reaping(queues: ReapedQueues) -> None:
    """Until one that began after now has ended."""
    while queues.reaped.acquire(blocking=False):
        pass
    assert all(queues.reaped.acquire(timeout=10) for _ in range(2))


Reap = Callable[[ReapedQueues], threading.Event]


def test_a_restarted_orchestrator_lets_servers_be_heard_first(
    reap: Reap, server: AgentServer
) -> None:
    queues = ReapedQueues()
    queues.register(server)
    queues.now += 10 * LEASE_SECONDS
    stopping = reap(queues)
    try:
        wait_for_a_reaping(queues)
        assert queues.servers() == [server]
        queues.now += LEASE_SECONDS
        wait_for_a_reaping(queues)
        assert queues.servers() == []
    finally:
        stopping.set()


def test_an_outage_of_redis_silences_nobody(reap: Reap, server: AgentServer) -> None:
    queues = ReapedQueues()
    queues.register(server)
    stopping = reap(queues)
    try:
        queues.away = True
        wait_for_a_reaping(queues)
        queues.now += 10 * LEASE_SECONDS
        queues.away = False
        wait_for_a_reaping(queues)
        assert queues.servers() == [server]
    finally:
        stopping.set()
