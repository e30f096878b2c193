"""Callers that take a service's room and give it nothing to do. All bounded, and on loopback."""

import contextlib
import resource
import socket
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import requests

from rollyard import codec
from rollyard.messages import Grade, Lease, Outcome, Result, Trajectory

HALF_A_HEAD = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /heartbeats HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 4096\r\n\r\n{"
)
SPARE_FILES = 512
BYTES_OF_A_TOKEN = 9
"""Its id, its logprob and its place in the mask."""


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


@contextmanager
def posted(url: str, body: bytes, mimetype: str, number: int) -> Iterator[list[requests.Response]]:
    """The body, posted `number` times at once while the block runs; the answers are there when it
    is left."""
    answers: list[requests.Response] = []

    def post(_: int) -> None:
        headers = {"Content-Type": mimetype}
        answers.append(requests.post(url, data=body, headers=headers, timeout=120))

    with ThreadPoolExecutor(number) as threads:
        made = [threads.submit(post, each) for each in range(number)]
        yield answers
        for each in made:
            each.result()


def rows_of_empty_maps(size: int) -> bytes:
    """A list with one Prompt whose row has `size` empty maps, in msgpack: a byte for each. Its id
    is refused, once all of it was read."""
    (head, tail) = codec.encode(
        [{"prompt_id": "no name", "instance": {"data_source": "nowhere", "x": "HERE"}}]
    ).split(b"\xa4HERE")
    return head + b"\xdd" + size.to_bytes(4, "big") + b"\x80" * size + tail


def rows_of_empty_lists(size: int) -> bytes:
    """The same with empty lists, in JSON: three bytes for each."""
    values = b"[]" + b",[]" * (size - 1)
    return (
        b'[{"prompt_id": "no name", "instance": {"data_source": "nowhere", "x": ['
        + values
        + b"]}}]"
    )


def large_results(size: int) -> bytes:
    """A Result of about `size` bytes, of a Lease that nobody has."""
    tokens = size // BYTES_OF_A_TOKEN
    trajectory = Trajectory(
        token_ids=array("i", bytes(4 * tokens)),
        loss_mask=array("b", bytes(tokens)),
        logprobs=array("f", bytes(4 * tokens)),
        weight_spans=(),
        turns=(),
        messages=(),
    )
    lease = Lease(job_id="nowhere/g/0", attempt=1, server_id="nobody", slot="nobody#0")
    result = Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0), trajectory=trajectory
    )
    return codec.encode([result])


def _allow_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
