"""The callers that wait for an answer, each watched for the end of its connection."""

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Callers:
    """Owns the thread that watches all callers. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self._poller = select.epoll()
        self._wakeup = os.eventfd(0)
        self._poller.register(self._wakeup, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="callers", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self, caller: socket.socket, gone: Callable[[], None]) -> Iterator[None]:
        """Call `gone` if the caller hangs up inside the block, in a thread that may be late."""
        number = caller.fileno()
        with self._lock:
            self._watched[number] = caller, gone
            self._poller.register(number, select.EPOLLRDHUP | select.EPOLLONESHOT)
        try:
            yield
        finally:
            with self._lock:
                del self._watched[number]
                self._poller.unregister(number)

    def close(self) -> None:
        os.eventfd_write(self._wakeup, 1)
        self._thread.join()
        self._poller.close()
        os.close(self._wakeup)

    def _watch(self) -> None:
        while True:
            for number, _ in self._poller.poll():
                if number == self._wakeup:
                    return
                with self._lock:
                    watched = self._watched.get(number)
                # The number may be that of a newer connection by now.
                if watched is not None and _hung_up(watched[0]):
                    watched[1]()


def _hung_up(caller: socket.socket) -> bool:
    if caller.fileno() < 0:
        return False
    poller = select.poll()
    poller.register(caller, _HUNG_UP)
    return bool(poller.poll(0))
