"""Callers that take a service's room and give it nothing to do. All bounded, and on loopback."""

import contextlib
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

HALF_A_HEAD = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /heartbeats HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 4096\r\n\r\n{"
)
SPARE_FILES = 512


@contextmanager
def connections(url: str, number: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections on which `said` was sent and nothing follows."""
    _allow_files(number + SPARE_FILES)
    address = urlsplit(url)
    with contextlib.ExitStack() as held:
        callers = []
        for _ in range(number):
            caller = socket.create_connection((address.hostname, address.port), 60)
            callers.append(held.enter_context(caller))
            with contextlib.suppress(ConnectionError):  # it may be closed again by now
                caller.sendall(said)
        yield callers


def _allow_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
