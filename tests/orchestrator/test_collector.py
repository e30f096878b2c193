"""The collector concludes what happened, also what an outage of the queues interrupted."""

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import AnyEvent, BatchRequested
from orchestrator.queues.contract import Conclusion, Moved, Run
from orchestrator.queues.redis_queues import Queues
from rollyard import codec
from rollyard.errors import Conflict, QueueUnavailable
from rollyard.messages import Prompt, RunSettings
from tests.queue_fixtures import QueueMaker


class FailsOnce(Queues):
    """Away when it is first asked for an event that is there."""

    outages = 1

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        events = super().next_events(run_id, most)
        if events and self.outages:
            self.outages -= 1
            raise QueueUnavailable("Redis is away")
        return events


def test_an_event_that_an_outage_interrupted_is_concluded_without_another_one(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(FailsOnce)
    queues.create_run(settings)
    stopping = threading.Event()
    collector = Collector(queues, lambda _: None)
    threading.Thread(target=collector.run, args=(stopping,), daemon=True).start()
    try:
        queues.submit("train", [prompt("p0")])
        deadline = time.monotonic() + 4
        while queues.run("train").events_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(queues.run("train").state.open) == ["p0"]
    finally:
        stopping.set()


class NeverIdle(Queues):
    """Something happens in the Run `busy` whenever its events are read."""

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        events = super().next_events(run_id, most)
        if run_id == "busy":
            self.tell("busy", BatchRequested(batch_id="b", requested_batch_size=1))
        return events


def test_a_run_whose_events_never_end_keeps_no_other_waiting(
    make_queues: QueueMaker, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(NeverIdle)
    queues.create_run(RunSettings(run_id="busy", group_size=2))
    queues.create_run(RunSettings(run_id="quiet", group_size=2))
    queues.submit("busy", [prompt("p0")])
    stopping = threading.Event()
    collector = Collector(queues, lambda _: None)
    threading.Thread(target=collector.run, args=(stopping,), daemon=True).start()
    try:
        for number in range(3):
            queues.submit("quiet", [prompt(f"p{number}")])
            deadline = time.monotonic() + 4
            while queues.run("quiet").events_waiting and time.monotonic() < deadline:
                time.sleep(0.01)
            assert queues.run("quiet").concluded == number + 1
    finally:
        stopping.set()


class TellsTheTime(Queues):
    """Notes until when a collector would sleep; something happens elsewhere meanwhile."""

    def __init__(self, *arguments: Any, stopping: threading.Event, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.until: list[float] = []
        self._stopping = stopping

    def wait_for_events(self, seconds: float) -> str | None:
        self.until.append(time.monotonic() + seconds)
        if len(self.until) == 2:
            self._stopping.set()
        time.sleep(0.1)
        return "train"


def test_no_event_keeps_a_collector_from_looking_around_in_time(
    make_queues: QueueMaker, settings: RunSettings
) -> None:
    stopping = threading.Event()
    queues = make_queues(TellsTheTime, stopping=stopping)
    queues.create_run(settings)
    Collector(queues, lambda _: None).run(stopping)
    first, second = queues.until
    assert second - first < 0.05


class ConcludedByAnother(Queues):
    """Another collector is quicker, once."""

    others = 1

    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        if self.others:
            self.others -= 1
            super().conclude(run_id, conclusion)
        return super().conclude(run_id, conclusion)


class OvertakenBetweenReads(Queues):
    """While a collector reads, another one concludes all that waits; once."""

    others = 1

    def __init__(self, *arguments: Any, read_first: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read_first = read_first

    def run(self, run_id: str) -> Run:
        run = super().run(run_id)
        self._overtake("run", run_id)
        return run

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        events = super().next_events(run_id, most)
        self._overtake("next_events", run_id)
        return events

    def _overtake(self, read: str, run_id: str) -> None:
        if self.others and read == self._read_first and super().run(run_id).events_waiting:
            self.others -= 1
            Collector(self, lambda _: None).collect(run_id)
            late = Prompt(prompt_id="late", instance={"data_source": "arithmetic"})
            self.submit(run_id, [late])


@pytest.mark.parametrize("read_first", ["run", "next_events"])
def test_a_collector_that_is_overtaken_between_its_reads_loses_no_event(
    make_queues: QueueMaker,
    settings: RunSettings,
    prompt: Callable[[str], Prompt],
    read_first: str,
) -> None:
    queues = make_queues(OvertakenBetweenReads, read_first=read_first)
    queues.create_run(settings)
    queues.submit("train", [prompt("p0")])
    Collector(queues, lambda _: None).collect("train")
    run = queues.run("train")
    assert list(run.state.open) == ["p0", "late"]
    assert (run.concluded, run.events_waiting) == (2, 0)


def test_two_collectors_conclude_every_event_once(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(ConcludedByAnother)
    queues.create_run(settings)
    for number in range(3):
        queues.submit("train", [prompt(f"p{number}")])
    Collector(queues, lambda _: None).collect("train")
    run = queues.run("train")
    assert list(run.state.open) == ["p0", "p1", "p2"]
    assert (run.concluded, run.events_waiting) == (3, 0)


def test_a_run_stored_by_another_version_is_named_and_keeps_no_other_waiting(
    admin_redis_url: str,
) -> None:
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    queues = Queues(admin_redis_url, prefix=prefix)
    for run_id in ("old", "train"):
        queues.create_run(RunSettings(run_id=run_id))
    with redis.Redis.from_url(admin_redis_url) as client:
        client.set(f"{prefix}run:old:sampler", codec.encode({"open": {}, "delivered": []}))
    for run_id in ("old", "train"):
        queues.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
    stopping = threading.Event()
    collector = Collector(Queues(admin_redis_url, prefix=prefix), lambda _: None)
    thread = threading.Thread(target=collector.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        queues.wait_for_conclusion("train", 10)
        assert queues.run("train").state.outstanding == ("b",)
        with pytest.raises(Conflict, match="'old' was stored by another version of Rollyard"):
            queues.run("old")
        assert thread.is_alive()
    finally:
        stopping.set()
