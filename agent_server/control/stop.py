"""Stop signals, which bring a cancellation or a deadline to whatever a stage is waiting for.

A signal is given once, with its reason, and stays given. Code that blocks registers a function that
interrupts it, which is called in the thread that stops, or at once if that has happened before. It
is not called, nor still under way, once that code is through.
"""

import math
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum


class StopReason(StrEnum):
    CANCELLED = "cancelled"
    """Nobody needs the Result any more."""
    OUT_OF_TIME = "out_of_time"
    """The stage's deadline has passed."""
    PARKED = "parked"
    """The attempt is to stand still: an unfinished response is kept, and continued later."""


class Stopped(Exception):
    """The order to stop, as the stage sees it: control flow of this process, not an error."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class _Wakeup:
    """A descriptor that becomes readable when it is woken, open while anybody may wake it."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        os.eventfd_write(self._descriptor, 1)


class StopSignal:
    def __init__(self) -> None:
        self.reason: StopReason | None = None
        """None until the signal is given."""
        self._lock = threading.Lock()
        self._interrupting = threading.RLock()
        """Lock held while interruptions are called, by a thread that may itself be meant."""
        self._interruptions: list[Callable[[], None]] = []

    def stop(self, reason: StopReason) -> None:
        with self._interrupting:
            with self._lock:
                if self.reason is not None:
                    return
                self.reason = reason
                interruptions = tuple(self._interruptions)
            for interrupt in interruptions:
                interrupt()

    def check(self) -> None:
        """Raise `Stopped` when the signal was given."""
        if self.reason is not None:
            raise Stopped(self.reason)

    def wait(self, seconds: float) -> None:
        """Wait for the signal, at most `seconds`."""
        given = threading.Event()
        with self.interrupting(given.set):
            given.wait(seconds)

    def wait_for(self, source: socket.socket, seconds: float) -> bool:
        """Wait until `source` has something to read, the signal is given, or `seconds` have passed.
        Returns whether there is something to read."""
        wakeup, poller = _Wakeup(), select.poll()
        poller.register(source, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        with self.interrupting(wakeup.wake):
            ready = poller.poll(math.ceil(seconds * 1e3))
        return any(descriptor == source.fileno() for descriptor, _ in ready)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` when the signal is given inside the block, or was given before it."""
        with self._lock:
            late = self.reason is not None
            self._interruptions.append(interrupt)
        if late:
            interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interruptions.remove(interrupt)
            if self.reason is not None:
                # One that is late would strike what the attempt does next.
                with self._interrupting:
                    pass

    def giving(self, other: "StopSignal") -> AbstractContextManager[None]:
        """Give `other`, for the same reason, when this signal is given inside the block."""

        def give() -> None:
            assert self.reason is not None
            other.stop(self.reason)

        return self.interrupting(give)
