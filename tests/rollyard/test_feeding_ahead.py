"""Either the caller feeds or the thread does, and nothing that it was asked is missed."""

import queue
import threading

import pytest

from rollyard import feeding_ahead
from rollyard.errors import OrchestratorUnavailable
from rollyard.feeding_ahead import FeedingAhead

SECONDS = 10.0
LOOK_SECONDS = 0.2
"""How long a test looks whether something happens that must not."""


class Work:
    """Feeding that goes on as long as it is told, and says when it began."""

    def __init__(self) -> None:
        self.began: queue.Queue[str] = queue.Queue()
        self.more: queue.Queue[bool | Exception] = queue.Queue()

    def feed(self) -> bool:
        self.began.put(threading.current_thread().name)
        more = self.more.get(timeout=SECONDS)
        if isinstance(more, Exception):
            raise more
        return more

    def next_thread(self) -> str:
        return self.began.get(timeout=SECONDS)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def ahead(work: Work) -> FeedingAhead:
    return FeedingAhead("feed-run", work.feed)


def test_it_feeds_until_there_is_no_more_to_do(work: Work, ahead: FeedingAhead) -> None:
    ahead.go_on()
    for more in (True, True, False):
        assert work.next_thread() == "feed-run"
        work.more.put(more)
    ahead.stop()
    assert work.began.empty()


def test_what_is_asked_while_it_comes_to_its_end_is_not_missed(
    work: Work, ahead: FeedingAhead
) -> None:
    ahead.go_on()
    work.next_thread()
    ahead.go_on()
    work.more.put(False)
    assert work.next_thread() == "feed-run"
    work.more.put(False)
    ahead.stop()


def test_it_begins_anew_after_its_end(work: Work, ahead: FeedingAhead) -> None:
    for _ in range(3):
        work.more.put(False)
        ahead.go_on()
        work.next_thread()
        with ahead.paused():
            assert work.began.empty()
    ahead.stop()


def test_the_caller_takes_over_only_when_what_is_being_fed_is_fed() -> None:
    feeding, caller_in = threading.Event(), threading.Event()
    together: list[bool] = []

    def feed() -> bool:
        feeding.set()
        together.append(caller_in.wait(LOOK_SECONDS))
        return False

    ahead = FeedingAhead("feed-run", feed)
    ahead.go_on()
    assert feeding.wait(SECONDS)
    with ahead.paused():
        caller_in.set()
        assert together == [False]


def test_nothing_is_fed_until_the_caller_is_done() -> None:
    feeding = threading.Event()

    def feed() -> bool:
        feeding.set()
        return False

    ahead = FeedingAhead("feed-run", feed)
    with ahead.paused():
        ahead.go_on()
        assert not feeding.wait(LOOK_SECONDS)
    assert feeding.wait(SECONDS)


def test_what_went_wrong_is_raised_once_where_the_caller_takes_over(
    work: Work, ahead: FeedingAhead
) -> None:
    work.more.put(OSError("the disk of the dataset is gone"))
    ahead.go_on()
    work.next_thread()
    with pytest.raises(OSError, match="the disk of the dataset is gone"), ahead.paused():
        pytest.fail("the caller goes on as if nothing had happened")
    with ahead.paused():
        pass


def test_that_the_orchestrator_is_away_is_no_error_of_the_callers(
    work: Work, ahead: FeedingAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding_ahead, "AGAIN_SECONDS", 0.0)
    for _ in range(3):
        work.more.put(OrchestratorUnavailable("connection refused"))
    work.more.put(False)
    ahead.go_on()
    for _ in range(4):
        assert work.next_thread() == "feed-run"
    with ahead.paused():
        assert work.began.empty()


def test_nothing_is_fed_after_it_was_stopped(work: Work, ahead: FeedingAhead) -> None:
    ahead.go_on()
    work.next_thread()
    work.more.put(OSError("the run is closed"))
    ahead.stop()
    ahead.go_on()
    with ahead.paused():
        assert work.began.empty()
