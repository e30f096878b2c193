"""Computations in forked processes end within their limits, and tell how far they came."""

import os
import signal
import time

import pytest

from agent_server.rewards import bounded
from agent_server.rewards.bounded import Tell, news_from
from rollyard.errors import Unavailable


def test_a_computation_tells_its_caller() -> None:
    def work(tell: Tell) -> None:
        tell(b"a")
        tell(b"b")

    assert news_from(work) == b"ab"


def test_what_raises_or_dies_told_what_it_told_before() -> None:
    def raises(tell: Tell) -> None:
        tell(b"a")
        raise ValueError

    def dies(tell: Tell) -> None:
        tell(b"a")
        os.kill(os.getpid(), signal.SIGKILL)

    assert news_from(raises) == news_from(dies) == b"a"


def test_a_computation_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CPU_SECONDS", 1)

    def work(tell: Tell) -> None:
        tell(b"a")
        while True:
            pass

    assert news_from(work) == b"a"


def test_a_computation_that_takes_all_memory_is_ended() -> None:
    def work(tell: Tell) -> None:
        tell(b"a")
        tell(bytes(bounded.MEMORY_BYTES))

    assert news_from(work) == b"a"


def test_a_computation_that_gets_no_time_is_the_machines_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "_WALL_SECONDS", 0.05)
    with pytest.raises(Unavailable, match="overloaded"):
        news_from(lambda _: time.sleep(60))


def test_nothing_of_the_caller_runs_in_the_fork(capfd: pytest.CaptureFixture[str]) -> None:
    def work(_: Tell) -> None:
        raise SystemExit

    assert news_from(work) == b""
    assert capfd.readouterr() == ("", "")
