"""The sockets of callers, without TLS and with it: a caller that reads too slowly is given up."""

import contextlib
import socket
import ssl
import time
from typing import Any

IDLE_SECONDS = 10.0
"""Time between two pieces of a body."""
MIN_BYTES_PER_SECOND = 512 * 1024
"""Average rate below which a caller that sends a body, or reads an answer, is disconnected, after
a grace of `IDLE_SECONDS`."""


def seconds_for(number_of_bytes: int) -> float:
    """Time for sending or receiving so many bytes."""
    return IDLE_SECONDS + number_of_bytes / MIN_BYTES_PER_SECOND


class Caller(socket.socket):
    """A socket without TLS. `sendall` raises `TimeoutError` for a caller that reads too slowly."""

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        # Python's timeout is for the whole of `data`, so it has to grow with its length.
        self.settimeout(seconds_for(memoryview(data).nbytes))
        super().sendall(data, flags)


class TLSCaller(ssl.SSLSocket):
    """The same with TLS."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        # OpenSSL sends a record at a time, and Python's timeout would be for each of them.
        with memoryview(data) as view, view.cast("B") as whole:
            until, sent = time.monotonic() + seconds_for(whole.nbytes), 0
            while sent < whole.nbytes:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the caller reads too slowly")
                self.settimeout(left)
                sent += self.send(whole[sent:])

    def say_goodbye(self) -> None:
        """Tell the caller, without waiting, that nothing more comes: it need not suspect that
        somebody has cut the connection."""
        with contextlib.suppress(OSError, ValueError):
            self.unwrap()
