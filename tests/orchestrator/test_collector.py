"""The collector concludes what happened, also what an outage of the queues interrupted."""

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.loops import run_through_outages
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion, Moved
from orchestrator.queues.events import Events, PendingEvents
from orchestrator.queues.question import Question
from orchestrator.queues.runs import Run, Runs
from rollyard import codec
from rollyard.errors import Conflict, QueueUnavailable
from rollyard.messages import Prompt, RunSettings
from tests.queue_fixtures import QueueMaker

SomeEvents = TypeVar("SomeEvents", bound=Events)


def events_of(kind: type[SomeEvents], queues: Queues) -> SomeEvents:
    return kind(queues.connection, queues.runs, queues.epochs)


class FailsOnce(Events):
    """Away when it is first asked for an event that is there."""

    outages = 1

    def pending(self, run_id: str) -> PendingEvents:
        pending = super().pending(run_id)
        if pending.events and self.outages:
            self.outages -= 1
            raise QueueUnavailable("Redis is away")
        return pending


def test_an_event_that_an_outage_interrupted_is_concluded_without_another_one(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(Queues)
    queues.runs.create(settings)
    stopping = threading.Event()
    collector = Collector(events_of(FailsOnce, queues), queues.runs, lambda _: None)
    threading.Thread(
        target=run_through_outages, args=(collector.run, stopping), daemon=True
    ).start()
    try:
        queues.tasks.submit("train", [prompt("p0")])
        deadline = time.monotonic() + 4
        while queues.runs.read("train").events_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(queues.runs.read("train").state.open) == ["p0"]
    finally:
        stopping.set()


class NeverIdle(Events):
    """Something happens in the Run `busy` whenever its events are read."""

    def pending(self, run_id: str) -> PendingEvents:
        pending = super().pending(run_id)
        if run_id == "busy":
            self.tell("busy", BatchRequested(batch_id="b", requested_batch_size=1))
        return pending


def test_a_run_whose_events_never_end_keeps_no_other_waiting(
    make_queues: QueueMaker, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(Queues)
    queues.runs.create(RunSettings(run_id="busy", group_size=2))
    queues.runs.create(RunSettings(run_id="quiet", group_size=2))
    queues.tasks.submit("busy", [prompt("p0")])
    stopping = threading.Event()
    collector = Collector(events_of(NeverIdle, queues), queues.runs, lambda _: None)
    threading.Thread(
        target=run_through_outages, args=(collector.run, stopping), daemon=True
    ).start()
    try:
        for number in range(3):
            queues.tasks.submit("quiet", [prompt(f"p{number}")])
            deadline = time.monotonic() + 4
            while queues.runs.read("quiet").events_waiting and time.monotonic() < deadline:
                time.sleep(0.01)
            assert queues.runs.read("quiet").concluded == number + 1
    finally:
        stopping.set()


class TellsTheTime(Events):
    """Notes until when a collector would sleep; something happens elsewhere meanwhile."""

    def __init__(self, queues: Queues, stopping: threading.Event) -> None:
        super().__init__(queues.connection, queues.runs, queues.epochs)
        self.until: list[float] = []
        self._stopping = stopping

    def wait(self, seconds: float) -> str | None:
        self.until.append(time.monotonic() + seconds)
        if len(self.until) == 2:
            self._stopping.set()
        time.sleep(0.1)
        return "train"


def test_no_event_keeps_a_collector_from_looking_around_in_time(
    make_queues: QueueMaker, settings: RunSettings
) -> None:
    stopping = threading.Event()
    queues = make_queues(Queues)
    queues.runs.create(settings)
    events = TellsTheTime(queues, stopping)
    Collector(events, queues.runs, lambda _: None).run(stopping)
    first, second = events.until
    assert second - first < 0.05


class ConcludedByAnother(Events):
    """Another collector is quicker, once."""

    others = 1

    def conclude(self, run_id: str, conclusion: Conclusion) -> Moved:
        if self.others:
            self.others -= 1
            super().conclude(run_id, conclusion)
        return super().conclude(run_id, conclusion)


class Overtaking:
    """Another collector, which concludes all that waits before one more Prompt is fed; once."""

    others = 1

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def __call__(self, run_id: str) -> None:
        if self.others and self._queues.runs.read(run_id).events_waiting:
            self.others -= 1
            Collector(self._queues.events, self._queues.runs, lambda _: None).collect(run_id)
            late = Prompt(prompt_id="late", instance={"data_source": "arithmetic"})
            self._queues.tasks.submit(run_id, [late])


class OvertakenRuns(Runs):
    """A collector is overtaken when it has read the Run and its events, and not yet its Groups."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(queues.connection)
        self._overtake = Overtaking(queues)

    def run(self, run_id: str) -> Question[Run]:
        question = super().run(run_id)

        def read(answers: list[Any]) -> Run:
            run = question.read(answers)
            self._overtake(run_id)
            return run

        return Question(question.put, read)


def test_a_collector_that_is_overtaken_between_its_reads_loses_no_event(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(Queues)
    events = Events(queues.connection, OvertakenRuns(queues), queues.epochs)
    queues.runs.create(settings)
    queues.tasks.submit("train", [prompt("p0")])
    Collector(events, queues.runs, lambda _: None).collect("train")
    run = queues.runs.read("train")
    assert list(run.state.open) == ["p0", "late"]
    assert (run.concluded, run.events_waiting) == (2, 0)


def test_two_collectors_conclude_every_event_once(
    make_queues: QueueMaker, settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = make_queues(Queues)
    queues.runs.create(settings)
    for number in range(3):
        queues.tasks.submit("train", [prompt(f"p{number}")])
    events = events_of(ConcludedByAnother, queues)
    Collector(events, queues.runs, lambda _: None).collect("train")
    run = queues.runs.read("train")
    assert list(run.state.open) == ["p0", "p1", "p2"]
    assert (run.concluded, run.events_waiting) == (3, 0)


def test_a_run_stored_by_another_version_is_named_and_keeps_no_other_waiting(
    admin_redis_url: str,
) -> None:
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    queues = Queues(admin_redis_url, prefix=prefix)
    for run_id in ("old", "train"):
        queues.runs.create(RunSettings(run_id=run_id))
    with redis.Redis.from_url(admin_redis_url) as client:
        client.set(f"{prefix}run:old:sampler", codec.encode({"open": {}, "delivered": []}))
    for run_id in ("old", "train"):
        queues.events.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
    stopping = threading.Event()
    again = Queues(admin_redis_url, prefix=prefix)
    collector = Collector(again.events, again.runs, lambda _: None)
    thread = threading.Thread(target=collector.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        queues.events.wait_for_conclusion("train", 10)
        assert queues.runs.read("train").state.outstanding == ("b",)
        with pytest.raises(Conflict, match="'old' was stored by another version of Rollyard"):
            queues.runs.read("old")
        assert thread.is_alive()
    finally:
        stopping.set()
