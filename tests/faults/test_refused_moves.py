"""Fault 8 of the fault catalogue in docs/reliability.md: Redis takes no writes; here, move by move.

Each move of the queues is made against a Redis that is full or read-only: it is done as a whole, or
leaves Redis byte for byte as it was.
"""

import uuid
from collections.abc import Callable, Iterator

import pytest
import redis

from chaos import work
from orchestrator.collector import Collector
from orchestrator.events import BatchAcknowledged, BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion
from orchestrator.queues.connection import NEED_MEMORY, SCRIPTS
from orchestrator.sampling.decisions import AnyDecision, Hold, Park
from rollyard.errors import QueueUnavailable
from rollyard.messages import (
    AgentServer,
    Assignment,
    Heartbeat,
    LLMNode,
    Prompt,
    RunSettings,
    Share,
    Trainer,
    WeightUpdate,
)
from tests.faults import moves

Contents = dict[bytes, bytes]
UPDATE = WeightUpdate(path="/checkpoint", version=7)
MOVES = sorted(path.stem for path in SCRIPTS.glob("[a-z]*.lua"))
LEAVE_ALL = ("expire", "recall")
"""Moves that have nothing to change in `BusyQueues`."""


class BusyQueues:
    """Queues with a Job in every place, and how each move can be made on them."""

    def __init__(self, url: str) -> None:
        self.prefix = f"rollyard:test:{uuid.uuid4().hex}:"
        self.queues = Queues(url, lease_seconds=60, prefix=self.prefix)
        self._fill()
        self.running = self._take()

    def _fill(self) -> None:
        queues = self.queues
        queues.runs.create(RunSettings(run_id="train", group_size=2, max_infra_failures=1))
        queues.runs.create(RunSettings(run_id="over"))
        queues.events.close("over")
        for _ in range(2):  # it ends with one turn of the collector, and is swept with the next
            Collector(queues.events, queues.runs, lambda _: None).collect("over")
        queues.servers.register(_server("agent-0"))
        self._park()
        for number in range(4):
            moves.submit(queues, "train", _prompt(f"p{number}"))
        queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=2))
        Collector(queues.events, queues.runs, lambda _: None).collect("train")
        moves.report(queues, moves.failed(self._take()))
        moves.report(queues, moves.completed(self._take()), more=True)
        queues.events.tell("train", BatchAcknowledged(batch_id="none"))
        queues.weights.publish(UPDATE)
        queues.weights.heartbeat(_node("gone"))
        queues.connection.do(lambda r: r.zadd(queues.connection.key("llm_seen"), {"gone": 0}))

    def _park(self) -> None:
        """Run `left` has a Job that stands still for its trainer."""
        queues = self.queues
        queues.runs.create(RunSettings(run_id="left", group_size=2, look_ahead_jobs=0))
        queues.epochs.claim("left", _trainer("first"))
        moves.submit(queues, "left", _prompt("p"))
        queues.events.tell("left", BatchRequested(batch_id="b", requested_batch_size=1))
        Collector(queues.events, queues.runs, lambda _: None).collect("left")
        self._take()
        run = queues.runs.read("left")
        decisions: list[AnyDecision] = [Hold(), Park()]
        queues.events.conclude(
            "left", Conclusion(after=run.concluded, events=0, state=run.state, decisions=decisions)
        )

    def make(self, move: str) -> object:
        queues, lease = self.queues, self.running.lease
        ways: dict[str, Callable[[], object]] = {
            "claim": lambda: queues.epochs.claim("left", _trainer("second")),
            "close": lambda: queues.events.close("train"),
            "conclude": self._conclude,
            "create_run": lambda: queues.runs.create(RunSettings(run_id="other")),
            "dismiss": lambda: queues.weights.dismiss("gone"),
            "drain": lambda: queues.servers.drain("agent-0"),
            "expire": queues.leases.expire,
            "forget": lambda: queues.runs.forget("over"),
            "give_back": lambda: queues.leases.give_back(lease),
            "heard": lambda: queues.epochs.heard("left", 1, leaving=False),
            "heartbeat": lambda: queues.servers.heartbeat(
                Heartbeat(server_id="agent-0", leases=(lease,))
            ),
            "lease": lambda: moves.lease(queues),
            "leave": lambda: queues.servers.leave("agent-0"),
            "lend": self._lend,
            "recall": queues.leases.recalls,
            "register": lambda: queues.servers.register(_server("agent-1")),
            "report": lambda: moves.report(queues, moves.completed(self.running), more=True),
            "requeue": lambda: queues.tasks.requeue(queues.jobs.dead("train")[0].job_id),
            "share": lambda: queues.runs.share("train", Share(weight=2)),
            "submit": lambda: moves.submit(queues, "train", _prompt("late")),
            "sweep": self._sweep,
            "unreached": lambda: queues.servers.unreached("agent-0"),
            "tell": lambda: queues.events.tell("train", BatchAcknowledged(batch_id="b")),
            "confirm": lambda: queues.weights.confirm(UPDATE, ["llm"]),
            "llm_heartbeat": lambda: queues.weights.heartbeat(_node("llm")),
            "publish": lambda: queues.weights.publish(WeightUpdate(path="/checkpoint", version=8)),
            "withdraw": lambda: queues.weights.withdraw(UPDATE),
        }
        return ways[move]()

    def _take(self) -> Assignment:
        assignment = moves.lease(self.queues)
        assert assignment is not None
        return assignment

    def _sweep(self) -> object:
        self.queues.events.close("train")
        Collector(self.queues.events, self.queues.runs, lambda _: None).collect("train")
        return self.queues.events.sweep("train")

    def _lend(self) -> object:
        self.queues.epochs.heard("left", 1, leaving=True)
        return self.queues.leases.lend()

    def _conclude(self) -> object:
        run = self.queues.runs.read("train")
        return self.queues.events.conclude(
            "train", Conclusion(after=run.concluded, events=1, state=run.state, decisions=[])
        )


def _server(server_id: str) -> AgentServer:
    return AgentServer(server_id=server_id, url="http://x", slots=4, environments=("chaos",))


def _trainer(trainer_id: str) -> Trainer:
    return Trainer(trainer_id=trainer_id, host="node-1", pid=11)


def _node(node_id: str) -> LLMNode:
    return LLMNode(node_id=node_id, url="http://x", servers=(), model="none", serves=7)


def _prompt(prompt_id: str) -> Prompt:
    return Prompt(prompt_id=prompt_id, instance={"data_source": work.DATA_SOURCE})


@pytest.fixture
def store(admin_redis_url: str) -> Iterator["redis.Redis"]:
    """The server itself, whole again after the test."""
    store = redis.Redis.from_url(admin_redis_url)
    yield store
    store.config_set("maxmemory", 0)
    store.replicaof("NO", "ONE")


@pytest.fixture
def busy(redis_url: str) -> BusyQueues:
    return BusyQueues(redis_url)


def contents(store: "redis.Redis", prefix: str) -> Contents:
    return {key: store.dump(key) or b"" for key in store.scan_iter(f"{prefix}*", count=1000)}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_is_done_as_a_whole_or_not_at_all_when_redis_is_full(
    store: "redis.Redis", busy: BusyQueues, move: str
) -> None:
    before = contents(store, busy.prefix)
    store.config_set("maxmemory", 1)
    if move not in NEED_MEMORY:
        busy.make(move)
    else:
        with pytest.raises(QueueUnavailable, match="out of memory"):
            busy.make(move)
        assert contents(store, busy.prefix) == before
        store.config_set("maxmemory", 0)
        busy.make(move)
    assert move in LEAVE_ALL or contents(store, busy.prefix) != before
    counters = busy.queues.runs.read("train").counters
    assert counters.jobs_submitted == (
        counters.jobs_queued
        + counters.jobs_leased
        + counters.jobs_accepted
        + counters.jobs_dead
        + counters.jobs_dropped
    )


@pytest.mark.parametrize("move", MOVES)
def test_no_move_is_begun_when_redis_is_read_only(
    store: "redis.Redis", busy: BusyQueues, move: str
) -> None:
    before = contents(store, busy.prefix)
    store.replicaof("127.0.0.1", "9")  # where no other Redis is
    with pytest.raises(QueueUnavailable, match="read only"):
        busy.make(move)
    assert contents(store, busy.prefix) == before
    store.replicaof("NO", "ONE")
    busy.make(move)
    assert move in LEAVE_ALL or contents(store, busy.prefix) != before
