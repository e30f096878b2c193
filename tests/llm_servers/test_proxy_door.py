"""The proxy's port: what is no request, who is late, who hangs up, and who goes on."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from llm_servers.contract import GENERATE
from llm_servers.proxy.caller import CallerHead
from tests.llm_fixtures import StartProxy, StartScriptedLLM
from tests.llm_servers.conftest import DEADLINE_SECONDS, LLM

SAMPLING = {"max_tokens": 2, "logprobs": 0, "ignore_eos": True}
BODY = json.dumps({"token_ids": [1, 2, 3], "sampling_params": SAMPLING}).encode()


def request(*fields: str, body: bytes = BODY, path: str = GENERATE, version: str = "1.1") -> bytes:
    head = (f"POST {path} HTTP/{version}", "Host: here", *fields, "", "")
    return "\r\n".join(head).encode() + body


def of_length(length: int = len(BODY)) -> str:
    return f"Content-Length: {length}"


class Line:
    """A connection of a caller that says what it likes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._read = sock.makefile("rb")

    def say(self, *words: bytes) -> None:
        for each in words:
            self.sock.sendall(each)

    def hear(self) -> tuple[int, bytes]:
        """Status and content of an answer, or of all that is left if it tells no length."""
        status = int(self._read.readline().split(b" ")[1])
        length = None
        while line := self._read.readline().strip():
            name, _, value = line.partition(b": ")
            length = int(value) if name.lower() == b"content-length" else length
        if status == 100:
            length = 0
        return status, self._read.read(-1 if length is None else length)

    def has_ended(self) -> bool:
        return self._read.read(1) == b""


@contextmanager
def line_to(url: str) -> Iterator[Line]:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as sock:
        yield Line(sock)


@pytest.fixture
def proxy(scripted_llm: str, start_proxy: StartProxy) -> str:
    return start_proxy(scripted_llm)


def test_requests_that_come_in_pieces_or_at_once_are_answered_one_after_the_other(
    proxy: str,
) -> None:
    whole = request(of_length())
    with line_to(proxy) as line:
        line.say(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
        assert line.hear()[0] == 200
        line.say(whole + whole + request(of_length(0), body=b"", path="/nowhere"))
        assert [line.hear()[0] for _ in range(3)] == [200, 200, 404]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (request(of_length(), version="2.0"), 400),
        (request("Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400),
        (request(of_length(), of_length(), body=b""), 400),
        (request("Content-Length: +5", body=b"12345"), 400),
        (request("no field", of_length()), 400),
        (request("X-Long: " + "x" * 70_000, of_length()), 431),
        (request(of_length(100 * 2**20), body=b""), 413),
    ],
)
def test_what_is_no_request_is_refused_and_nothing_behind_it_is_read(
    proxy: str, sent: bytes, status: int
) -> None:
    with line_to(proxy) as line:
        line.say(sent)
        refused, content = line.hear()
        assert refused == status
        assert json.loads(content)["message"]
        assert line.has_ended()


def test_a_caller_of_http_1_0_gets_its_answer_and_the_end_of_the_connection(proxy: str) -> None:
    streamed = json.dumps({**json.loads(BODY), "stream": True}).encode()
    for body, told in ((BODY, b'"choices"'), (streamed, b"data: [DONE]")):
        with line_to(proxy) as line:
            line.say(request(of_length(len(body)), body=body, version="1.0"))
            status, content = line.hear()
            assert (status, line.has_ended()) == (200, True)
            assert told in content


def test_a_caller_that_asks_first_is_told_to_go_on(proxy: str) -> None:
    with line_to(proxy) as line:
        line.say(request(of_length(), "Expect: 100-continue", body=b""))
        assert line.hear()[0] == 100
        line.say(BODY)
        assert line.hear()[0] == 200


def test_a_caller_that_hangs_up_ends_its_request_at_the_server(
    start_scripted_llm: StartScriptedLLM, start_proxy: StartProxy
) -> None:
    server = start_scripted_llm("--token-seconds", "0.01")
    watched = LLM(server, [1])
    long = {"token_ids": [1], "sampling_params": {**SAMPLING, "max_tokens": 1500}}
    body = json.dumps(long).encode()
    with line_to(start_proxy(server)) as line:
        line.say(request(of_length(len(body)), body=body))
        watched.wait(lambda: watched.requests_running() == 1, "the request to run")
    watched.wait(lambda: watched.requests_running() == 0, "the request to end")
    watched.control.close()


def test_other_callers_are_answered_while_one_is_slow(proxy: str) -> None:
    with line_to(proxy) as slow:
        slow.say(request(of_length(1000), body=BODY))
        assert requests.post(f"{proxy}{GENERATE}", data=BODY, timeout=10).status_code == 200
        slow.say(b" " * (1000 - len(BODY)))
        assert slow.hear()[0] == 200


def test_a_head_says_whether_the_connection_goes_on() -> None:
    def closes(version: str, **fields: str) -> bool:
        return CallerHead("POST", "/", version, fields, 0).closes

    assert not closes("HTTP/1.1")
    assert closes("HTTP/1.1", connection="Close")
    assert closes("HTTP/1.0")
    assert not closes("HTTP/1.0", connection="keep-alive")


def test_the_description_names_the_routes_that_flask_does_not_answer(proxy: str) -> None:
    described = requests.get(f"{proxy}/openapi.json", timeout=10).json()
    assert {GENERATE, "/v1/chat/completions", "/health", "/metrics"} <= set(described["paths"])
