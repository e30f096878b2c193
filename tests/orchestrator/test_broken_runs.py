"""What is wrong with one Run keeps no other waiting, and has a name."""

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.trainers import Trainers
from rollyard.messages import AgentServer, RunSettings
from tests.waiting import until

Break = Callable[[Queues, "redis.Redis"], object]


def a_queue_of_another_type(queues: Queues, store: "redis.Redis") -> None:
    store.set(queues.connection.key("run:m:queued"), "not a hash")


def a_group_of_another_type(queues: Queues, store: "redis.Redis") -> None:
    queues.events.tell(
        "m", BatchRequested(batch_id="c", requested_batch_size=1, begun={"m/p0/0": -9})
    )
    store.hset(queues.connection.key("run:m:open"), "p0", b"not a group")


def counts_that_do_not_count(queues: Queues, store: "redis.Redis") -> None:
    store.set(queues.connection.key("run:m:counts"), "not a hash")


@pytest.fixture
def store(admin_redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(admin_redis_url) as client:
        yield client


@pytest.mark.parametrize(
    "break_it", [a_queue_of_another_type, a_group_of_another_type, counts_that_do_not_count]
)
def test_a_broken_run_is_set_aside_by_name_and_the_others_go_on(
    patient_queues: Queues, server: AgentServer, store: "redis.Redis", break_it: Break
) -> None:
    queues = patient_queues
    queues.servers.register(server)
    for run_id in "amz":
        queues.runs.create(RunSettings(run_id=run_id, group_size=2))
        queues.events.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
    break_it(queues, store)
    stopping = threading.Event()
    collector = threading.Thread(
        target=Collector(queues.events, queues.runs, lambda _: None).run,
        args=(stopping,),
        daemon=True,
    )
    collector.start()
    try:
        until(
            "the others are concluded",
            lambda: all(queues.runs.read(run_id).state.knows("b") for run_id in "az"),
        )
        until("the run is set aside", lambda: "cannot be" in Operators(queues).why("m").reason)
        reasons = {run.run_id: run.waiting_for for run in Trainers(queues).statuses()}
        assert "cannot be" in reasons["m"]
        assert reasons["a"] == reasons["z"] == "the trainer's dataloader owes 2 prompts"
        assert collector.is_alive()
    finally:
        stopping.set()
        collector.join(20)


def test_a_run_that_was_mended_is_taken_up_again(
    patient_queues: Queues, store: "redis.Redis"
) -> None:
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="m", group_size=2))
    queues.events.tell("m", BatchRequested(batch_id="b", requested_batch_size=1))
    queues.events.set_aside("m", "something")
    assert queues.runs.read("m").set_aside == "something"
    Collector(queues.events, queues.runs, lambda _: None).collect("m")
    assert queues.runs.read("m").set_aside == ""
