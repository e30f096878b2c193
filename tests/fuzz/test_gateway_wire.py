"""What comes over a socket of the gateway and is no request breaks, keeps and leaves nothing."""

import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

from agent_server.gateway.door import MAX_CONNECTIONS
from tests.e2e.malformed import Routes, malformed_requests
from tests.fuzz.cases import SEED, cases
from tests.fuzz.conftest import HostedGateway, Session, ask

ROUTES: Routes = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/<model>"),
)
HI = [{"role": "user", "content": "hi"}]
SAMPLES: dict[str, Any] = {
    "/v1/chat/completions": {"model": "m", "messages": HI, "n": 2, "stream": True},
    "/v1/responses": {"model": "m", "input": HI, "max_output_tokens": 9},
    "/v1/messages": {"model": "m", "messages": HI, "max_tokens": 9, "stream": True},
}
HANG_SECONDS = 20.0
BEGINNINGS = (
    b"",
    b"\r",
    b"POST",
    b"POST /v1/messages HTTP/1.1\r\nX-Slow: ",
    b"POST /v1/messages HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
"""Requests that never end."""


def connect(session: Session) -> socket.socket:
    host, _, port = session.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), HANG_SECONDS)


def status_of(connection: socket.socket, sent: bytes) -> int:
    """The status of the first answer; 0 for a connection that was closed without one."""
    with connection:
        try:
            connection.sendall(sent)
            with contextlib.suppress(OSError):  # closed by the other side already
                connection.shutdown(socket.SHUT_WR)
            line = connection.makefile("rb").readline()
        except (BrokenPipeError, ConnectionResetError):
            return 0
    assert line == b"" or line.startswith(b"HTTP/1.1 "), line
    return int(line.split()[1]) if line else 0


def garbled(dice: random.Random, requests: Iterator[bytes]) -> Iterator[bytes]:
    """The requests, a few of them cut off, doubled, or with bytes changed anywhere."""
    for each in requests:
        match dice.randrange(8):
            case 0:
                yield each[: dice.randrange(len(each))]
            case 1:
                yield each + each[: dice.randrange(len(each))]
            case 2:
                at = dice.randrange(min(len(each), 400))
                yield each[:at] + dice.randbytes(3) + each[at + dice.randrange(4) :]
            case _:
                yield each


def test_malformed_requests_break_nothing(hosted: HostedGateway) -> None:
    session, number = hosted.open(), 5 * cases(40)
    requests = malformed_requests(ROUTES, SAMPLES, session.key, number, seed=SEED)
    statuses = Counter(
        status_of(connect(session), each) for each in garbled(random.Random(SEED), requests)
    )
    assert statuses.total() == number
    assert not [status for status in statuses if status >= 500], statuses
    assert statuses[200] > number / 50
    assert statuses[0] < number / 4
    assert hosted.close(session).exact


def test_clients_that_never_finish_keep_nobody_out(hosted: HostedGateway) -> None:
    session = hosted.open()
    with contextlib.ExitStack() as open_ones:
        for number in range(min(cases(60), MAX_CONNECTIONS)):
            connection = open_ones.enter_context(connect(session))
            connection.sendall(BEGINNINGS[number % len(BEGINNINGS)])
            if number % 3 == 0:  # the end comes as a reset
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert ask(hosted)
    hosted.close(session)
