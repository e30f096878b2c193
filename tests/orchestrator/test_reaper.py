"""The reaper: who is silent, and who could not be heard."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from orchestrator.queues.contract import Look
from orchestrator.queues.redis_queues import Queues
from orchestrator.reaper import Reaper
from rollyard.errors import QueueUnavailable
from rollyard.messages import AgentServer
from tests.queue_fixtures import QueueMaker


class ReapedQueues(Queues):
    """Queues in which a silence can be made up, and which tell how often they were reaped."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, lease_seconds=30.0, **options)
        self.away = False
        self.reaped = threading.Semaphore(0)

    def silence(self, server: AgentServer) -> None:
        """As if the server had not been heard of for longer than a Lease."""
        self._do(lambda r: r.zadd(self._key("seen"), {server.server_id: 0.0}))

    def expire(self, looked_at: float | None = None) -> Look:
        try:
            if self.away:
                raise QueueUnavailable("Redis is away")
            return msgspec.structs.replace(super().expire(looked_at), nap_seconds=0.0)
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
    make_queues: QueueMaker, reap: Reap, server: AgentServer
) -> None:
    queues = make_queues(ReapedQueues)
    queues.register(server)
    queues.silence(server)
    stopping = reap(queues)
    try:
        wait_for_a_reaping(queues)
        assert queues.servers() == [server]
        queues.silence(server)
        wait_for_a_reaping(queues)
        assert queues.servers() == []
    finally:
        stopping.set()


def test_an_outage_of_redis_silences_nobody(
    make_queues: QueueMaker, reap: Reap, server: AgentServer
) -> None:
    queues = make_queues(ReapedQueues)
    queues.register(server)
    stopping = reap(queues)
    try:
        queues.away = True
        wait_for_a_reaping(queues)
        queues.silence(server)
        queues.away = False
        wait_for_a_reaping(queues)
        assert queues.servers() == [server]
    finally:
        stopping.set()
