"""Stop signals: when the functions that they call are called, and when no more."""

import threading

from agent_server.control.stop import StopReason, StopSignal

SECONDS = 20.0


def test_an_interruption_under_way_is_over_before_its_block_is() -> None:
    signal, called, go_on, order = StopSignal(), threading.Event(), threading.Event(), []

    def interrupt() -> None:
        called.set()
        assert go_on.wait(SECONDS)
        order.append("interrupted")

    def work() -> None:
        with signal.interrupting(interrupt):
            assert called.wait(SECONDS)
            leaving.set()
        order.append("left")

    leaving = threading.Event()
    worker = threading.Thread(target=work)
    stopper = threading.Thread(target=signal.stop, args=(StopReason.OUT_OF_TIME,))
    for thread in (worker, stopper):
        thread.start()
    assert leaving.wait(SECONDS)
    go_on.set()
    for thread in (worker, stopper):
        thread.join(SECONDS)
    assert order == ["interrupted", "left"]


def test_a_thread_may_stop_what_it_does_itself() -> None:
    signal, struck = StopSignal(), []
    with signal.interrupting(lambda: struck.append(1)):
        signal.stop(StopReason.CANCELLED)
    assert struck == [1]


def test_an_interruption_is_not_called_after_its_block() -> None:
    signal, struck = StopSignal(), []
    with signal.interrupting(lambda: struck.append(1)):
        pass
    signal.stop(StopReason.CANCELLED)
    assert not struck
