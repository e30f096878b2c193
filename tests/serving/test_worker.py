"""How a service of ours deals with its connections: each caller is served, or given up alone."""

import json
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import psutil
import pytest

from launch.certificate_files import CertificateFiles
from rollyard.errors import RollyardError
from rollyard.http import Peer
from rollyard.messages import Accepted
from serving.crowd import MAX_OF_ONE_PEER
from serving.lanes import PROBE_THREADS
from tests.faults.crowds import connections
from tests.serving.example import BATCH, PATIENCE_SECONDS, SUBMIT, Example
from tests.serving.example_service import SUBMIT_TOKEN, THREADS, WORKER_TOKEN
from tests.waiting import until

WORKER = {"Authorization": f"Bearer {WORKER_TOKEN}"}


@pytest.fixture(scope="module", params=["http", "https"])
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    directory = tmp_path_factory.mktemp("example")
    files = CertificateFiles(directory) if request.param == "https" else None
    example = Example(directory / "log", files)
    try:
        example.await_ready()
        yield example
    finally:
        example.started.kill()


def request(path: str, *lines: str, body: bytes = b"", token: str = SUBMIT_TOKEN) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


def echo_request(name: str, *lines: str) -> bytes:
    body = json.dumps(BATCH | {"batch_id": name}).encode()
    return request("/echo", f"Content-Length: {len(body)}", *lines, body=body)


def answer_on(caller: socket.socket) -> tuple[int, Any]:
    """The status, and the body as JSON."""
    response = HTTPResponse(caller)
    response.begin()
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(response.read())


def test_a_request_that_does_not_come_in_time_is_given_up(example: Example) -> None:
    silent = example.call()
    half_a_head = example.call(b"POST /echo HTTP/1.1\r\nHost: lo")
    half_a_body = example.call(echo_request("b")[:-5])
    assert silent.recv(1) == b""
    for caller in (half_a_head, half_a_body):
        status, failure = answer_on(caller)
        assert (status, failure["code"]) == (408, "RequestTimeout")
        assert caller.recv(1) == b""


def test_a_service_without_a_file_left_for_a_caller_waits_for_one_and_says_so_once(
    example: Example,
) -> None:
    known = example.session()
    known.get(f"{example.url}/livez", timeout=PATIENCE_SECONDS)
    (worker,) = psutil.Process(example.started.process.pid).children()
    usual = worker.rlimit(psutil.RLIMIT_NOFILE)
    worker.rlimit(psutil.RLIMIT_NOFILE, (1, usual[1]))
    try:
        caller = example.connect()
        until(
            "the service to be short of files", lambda: "cannot_accept" in example.log.read_text()
        )
        assert known.get(f"{example.url}/livez", timeout=PATIENCE_SECONDS).text == "ok\n"
    finally:
        worker.rlimit(psutil.RLIMIT_NOFILE, usual)
    caller = example.greeted(caller)
    caller.sendall(echo_request("b"))
    assert answer_on(caller)[0] == 200
    assert example.log.read_text().count("cannot_accept") == 1


def test_a_caller_that_speaks_just_as_it_loses_its_place_costs_nobody_else(
    example: Example,
) -> None:
    (worker,) = psutil.Process(example.started.process.pid).children()
    known = example.session()
    known.get(f"{example.url}/livez", timeout=PATIENCE_SECONDS).raise_for_status()
    with connections(example.url, MAX_OF_ONE_PEER - 1) as (oldest, *_):
        worker.suspend()  # so that it sees both at once
        newcomer = example.connect()
        oldest.sendall(echo_request("b"))
        worker.resume()
        newcomer = example.greeted(newcomer)
        newcomer.sendall(echo_request("b"))
        assert answer_on(newcomer) == (200, BATCH)
    assert known.get(f"{example.url}/livez", timeout=PATIENCE_SECONDS).text == "ok\n"
    assert worker.is_running()


def test_services_and_probes_are_answered_while_all_other_threads_are_taken(
    example: Example,
) -> None:
    at_the_gate = request("/gate", "Content-Length: 0").replace(b"POST", b"GET")
    looking = at_the_gate.replace(b"/gate", b"/readyz")
    waiting = [example.call(at_the_gate) for _ in range(2 * THREADS)]
    waiting += [example.call(looking) for _ in range(2 * PROBE_THREADS)]
    beat = example.ask("POST", "/heartbeats", json=BATCH, headers=WORKER)
    assert beat.json() == BATCH
    assert example.ask("GET", "/livez").text == "ok\n"
    example.ask("POST", "/open").raise_for_status()
    for caller in waiting:
        assert b" 200 " in caller.recv(64)


def test_a_caller_that_does_not_read_its_answer_is_given_up(example: Example) -> None:
    words = request("/long", "Content-Length: 0").replace(b"POST", b"GET")
    deaf = [example.call(words, receive_bytes=4096) for _ in range(THREADS)]
    assert example.echo() == BATCH
    for caller in deaf:
        caller.close()


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 414, "RequestURITooLong"),
        (b"GET /" + b"x" * 70_000, 414, "RequestURITooLong"),
        (
            b"GET / HTTP/1.1\r\nX-Y: " + b"x" * 9000 + b"\r\n\r\n",
            *(431, "RequestHeaderFieldsTooLarge"),
        ),
        (b"GET / HTTP/1.1\r\n" + b"X-Y: z\r\n" * 9000, 431, "RequestHeaderFieldsTooLarge"),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400, "InvalidMessage"),
        (b"nonsense\r\n\r\n", 400, "InvalidMessage"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: rot13\r\n\r\n", 501, "NotImplemented"),
        (b"GET / HTTP/1.1\r\nExpect: a miracle\r\n\r\n", 417, "ExpectationFailed"),
    ],
)
def test_what_is_no_request_is_refused_as_json(
    example: Example, words: bytes, status: int, code: str
) -> None:
    answered, failure = answer_on(example.call(words))
    assert (answered, failure["code"]) == (status, code)
    assert failure["message"]


def test_a_peer_is_told_why_its_request_never_reached_the_app(example: Example) -> None:
    with pytest.raises(RollyardError, match="not a valid HTTP request: Request Line is too large"):
        Peer(example.url, name="example", ca_file=example.ca_file).get("/" + "x" * 8000, Accepted)


def test_a_body_that_ends_too_early_is_refused(example: Example) -> None:
    caller = example.call(echo_request("b")[:-5])
    if isinstance(caller, ssl.SSLSocket):
        pytest.skip("who ends a session of TLS hears nothing more")
    caller.shutdown(socket.SHUT_WR)
    assert answer_on(caller)[0] == 400


def test_requests_sent_together_are_answered_in_their_order(example: Example) -> None:
    names = [f"b{number}" for number in range(20)]
    caller = example.call(b"".join(map(echo_request, names)))
    with caller.makefile("rb") as answers:
        for name in names:
            assert next_answer(answers)["batch_id"] == name


def next_answer(answers: Any) -> Any:
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(answers.read(length))


def test_a_caller_that_asks_first_is_told_to_send_its_body(example: Example) -> None:
    words = echo_request("b", "Expect: 100-continue")
    head, _, body = words.partition(b"\r\n\r\n")
    caller = example.call(head + b"\r\n\r\n")
    assert caller.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    caller.sendall(body)
    assert answer_on(caller) == (200, BATCH)


@pytest.mark.parametrize("token", ["nobody-0123456789abcdef", WORKER_TOKEN])
def test_a_body_of_those_who_may_not_call_is_not_waited_for(example: Example, token: str) -> None:
    caller = example.call(request("/echo", "Content-Length: 1000", token=token))
    assert answer_on(caller)[0] in (401, 403)


def test_a_body_in_chunks_is_read_to_its_end(example: Example) -> None:
    body = json.dumps(BATCH).encode()
    pieces = (bytes([byte]) for byte in body)
    answer = example.ask("POST", "/echo", data=pieces, headers=SUBMIT)
    assert answer.json() == BATCH


def test_chunks_that_are_none_are_the_callers_mistake(example: Example) -> None:
    caller = example.call(request("/echo", "Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n"))
    status, failure = answer_on(caller)
    assert (status, failure["code"]) == (400, "InvalidMessage")
