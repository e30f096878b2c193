"""Deadlines: each step is taken once, in its turn, whatever becomes of the others."""

import queue
import sched
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from agent_server.control import deadline
from agent_server.control.deadline import Alarms, Deadline
from tests.agent_server.fakes import PATIENCE_SECONDS


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    kept = Alarms()
    yield kept
    kept.close()


class Clock(Alarms):
    """Time that passes when it is told to, and the alarms set on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.seconds: list[float] = []
        """Until each alarm when it was set."""
        self.ring: Callable[[], None] = lambda: None
        """The last alarm's action."""

    def monotonic(self) -> float:
        return self.now

    def at(self, due: float, name: str, action: Callable[[], None]) -> sched.Event:
        self.seconds.append(due - self.now)
        self.ring = action
        return sched.scheduler().enterabs(due, 0, action)

    def cancel(self, alarm: sched.Event) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadline, "time", clock)
    return clock


def test_time_stands_still_while_a_deadline_is_held(clock: Clock) -> None:
    taken: list[str] = []
    steps = [(10.0, partial(taken.append, "stop")), (15.0, partial(taken.append, "kill"))]
    until = Deadline(clock, "run", *steps)
    until.start()
    clock.now += 4
    with until.held():
        clock.now += 1000
    clock.now += 1
    with until.held():
        clock.now += 1000
    assert until.ends_at == clock.now + 5
    clock.now += 5
    clock.ring()
    with until.held():
        clock.now += 1000
    assert clock.seconds == [10.0, 6.0, 5.0, 5.0, 5.0]
    assert taken == ["stop"]
    clock.now += 5
    clock.ring()
    assert taken == ["stop", "kill"]


def test_an_alarm_that_was_overtaken_takes_no_step(clock: Clock) -> None:
    """It may go off while its deadline is stopped, or just after it began anew."""
    taken: list[str] = []
    until = Deadline(clock, "run", (10.0, partial(taken.append, "stop")))
    until.start()
    ring = clock.ring
    clock.now += 9
    until.stop()
    clock.now += 9
    ring()
    until.start()
    ring()
    assert not taken
    clock.now += 1
    ring()
    ring()
    assert taken == ["stop"]


def test_what_is_due_first_happens_first(alarms: Alarms) -> None:
    rung: queue.Queue[str] = queue.Queue()
    begin = time.monotonic()
    for seconds, name in ((0.2, "third"), (0.1, "second"), (-1.0, "first")):
        alarms.at(begin + seconds, name, partial(rung.put, name))
    alarms.cancel(alarms.at(begin + 0.15, "never", partial(rung.put, "never")))
    assert [rung.get(timeout=PATIENCE_SECONDS) for _ in range(3)] == ["first", "second", "third"]


def test_a_step_that_fails_keeps_no_other_deadline_waiting(alarms: Alarms) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    rung = threading.Event()
    Deadline(alarms, "bad", (0.0, fail)).start()
    Deadline(alarms, "good", (0.05, rung.set)).start()
    assert rung.wait(PATIENCE_SECONDS)


def test_all_deadlines_share_one_thread(alarms: Alarms) -> None:
    before = threading.active_count()
    many = [Deadline(alarms, f"run-{n}", (60.0, lambda: None)) for n in range(100)]
    for each in many:
        each.start()
    assert threading.active_count() == before
    for each in many:
        each.stop()
