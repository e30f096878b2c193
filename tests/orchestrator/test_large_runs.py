"""What one event, one look and one end cost in a Run of very many Groups: counted, not timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.queues.redis_queues import Queues
from rollyard.messages import AgentServer, Prompt, RunSettings
from tests.orchestrator.test_queues import completed, leased, report
from tests.queue_fixtures import QueueMaker

FEW, MANY = 10, 2000
MakePrompt = Callable[[str], Prompt]


@contextmanager
def bytes_moved(store: "redis.Redis") -> Iterator[list[int]]:
    """Between all clients and Redis meanwhile."""

    def moved() -> int:
        stats = store.info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])

    counted = [moved()]
    yield counted
    counted[0] = moved() - counted[0]


@pytest.fixture
def store(admin_redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(admin_redis_url) as client:
        yield client


def run_of_groups(queues: Queues, server: AgentServer, prompt: MakePrompt, groups: int) -> None:
    """An open Run of so many Groups, all concluded."""
    queues.create_run(RunSettings(run_id="train", group_size=2))
    queues.register(server)
    queues.submit("train", [prompt(f"p{number:06}") for number in range(groups)])
    queues.tell("train", BatchRequested(batch_id="b", requested_batch_size=groups))
    collect(queues)


def collect(queues: Queues) -> None:
    while queues.run("train").events_waiting:
        Collector(queues, lambda _: None).collect("train")


def test_an_event_moves_as_many_bytes_in_a_run_of_many_groups_as_in_one_of_few(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt, store: "redis.Redis"
) -> None:
    costs = []
    for groups in (FEW, MANY):
        queues = make_queues(Queues)
        run_of_groups(queues, server, prompt, groups)
        report(queues, completed(leased(queues)))
        with bytes_moved(store) as moved:
            collect(queues)
        assert len(queues.run("train").state.open["p000000"].done) == 1
        costs += moved
    few, many = costs
    assert many < 1.2 * few


def test_a_look_at_a_run_moves_as_many_bytes_however_many_groups_it_has(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt, store: "redis.Redis"
) -> None:
    costs = []
    for groups in (FEW, MANY):
        queues = make_queues(Queues)
        run_of_groups(queues, server, prompt, groups)
        with bytes_moved(store) as moved:
            assert queues.run("train").open_groups == groups
        costs += moved
    few, many = costs
    assert many < 1.2 * few
