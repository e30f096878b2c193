"""Clients that hang up: nobody waits for the answer any more, so the request for it is stopped."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agent_server.control.stop import StopReason, StopSignal


class Hangups:
    """Owns the thread that notices them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, StopSignal] = {}
        self._poller = select.epoll()
        self._closing, self._ours = socket.socketpair()
        self._poller.register(self._ours, select.EPOLLRDHUP)
        self._thread = threading.Thread(target=self._watch, name="hangups", daemon=True)
        self._thread.start()

    @contextmanager
    def stopping(self, client: socket.socket) -> Iterator[StopSignal]:
        """Yield a signal that is given when the client hangs up inside the block."""
        gone, descriptor = StopSignal(), client.fileno()
        with self._lock:
            self._watched[descriptor] = gone
            # Not for what it sends: the next request may be there already.
            self._poller.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)
        try:
            yield gone
        finally:
            with self._lock:
                del self._watched[descriptor]
                self._poller.unregister(descriptor)

    def close(self) -> None:
        self._closing.close()
        self._thread.join()
        self._ours.close()
        self._poller.close()

    def _watch(self) -> None:
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor == self._ours.fileno():
                    return
                with self._lock:
                    gone = self._watched.get(descriptor)
                    # The descriptor may be another client's by now.
                    hung_up = gone is not None and _has_hung_up(descriptor)
                if gone is not None and hung_up:
                    gone.stop(StopReason.CANCELLED)


def _has_hung_up(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLRDHUP)
    return bool(poller.poll(0))
