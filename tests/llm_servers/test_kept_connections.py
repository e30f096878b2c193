"""Connections to LLM servers that are kept: what may be sent over one that was used before."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import BinaryIO

import msgspec
import pytest

from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.exchange import Away, Exchange
from llm_servers.dialects.vllm_tokens import VLLM_TOKENS
from llm_servers.generation import TurnRequest
from llm_servers.kept_connections import MAX_IDLE, KeptConnections
from llm_servers.llm_connection import AddressOfLLM, LLMConnection
from rollyard.messages import Sampling
from tests.waiting import until

PATIENCE_SECONDS = 20.0
ANSWER = msgspec.json.encode(
    {"choices": [{"finish_reason": "stop", "token_ids": [7], "logprobs": {"content": []}}]}
)
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
CLOSING = WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
OLD = WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Respond = Callable[[int, int], bytes | None]
"""What is answered to a request of a connection, both by their numbers from 0; None hangs up."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class LastWords(bytes):
    """An answer, or a part of one, behind which the server hangs up."""


class CountingLLM:
    """An LLM server that knows over which connection each request came."""

    def __init__(self, respond: Respond, port: int = 0) -> None:
        self._respond = respond
        self.asked: list[tuple[int, str]] = []
        """The connection and the request id of every request."""
        self.left: list[int] = []
        """Connections that the client has closed."""
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._let_in, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for client in self._open:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _let_in(self) -> None:
        for number in itertools.count():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(number, client), daemon=True).start()

    def _serve(self, number: int, client: socket.socket) -> None:
        with client, client.makefile("rb") as sent:
            try:
                for request in itertools.count():
                    if (answer := self._answer(number, request, sent)) is None:
                        return
                    client.sendall(answer)
                    if isinstance(answer, LastWords):
                        return
            except ConnectionError:
                self.left.append(number)

    def _answer(self, number: int, request: int, sent: BinaryIO) -> bytes | None:
        head = list(iter(sent.readline, b"\r\n")) if (line := sent.readline()) else []
        if not line:
            raise ConnectionError("the client has hung up")
        lengths = [int(s.split(b":")[1]) for s in head if s.startswith(b"Content-Length")]
        asked = msgspec.json.decode(sent.read(lengths[0]))
        self.asked.append((number, asked.get("request_id", "")))
        return self._respond(number, request)


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with closing(Exchange(connect_seconds=5.0, abort_seconds=5.0)) as exchange:
        yield exchange


@pytest.fixture
def turn() -> TurnRequest:
    return TurnRequest(
        trajectory="t",
        group="g",
        token_ids=(1, 2),
        sampling=Sampling(),
        max_tokens=4,
        stop_token_ids=(7,),
    )


def ask(
    exchange: Exchange, llm: CountingLLM, turn: TurnRequest, stop: StopSignal | None = None
) -> tuple[int, ...]:
    answer = exchange.ask(llm.url, VLLM_TOKENS, turn, stop or StopSignal(), PATIENCE_SECONDS)
    return answer.token_ids


def connections(llm: CountingLLM) -> list[int]:
    return [connection for connection, _ in llm.asked]


def test_requests_that_follow_each_other_go_over_one_connection(
    exchange: Exchange, turn: TurnRequest
) -> None:
    with closing(CountingLLM(lambda connection, request: WHOLE)) as llm:
        assert [ask(exchange, llm, turn) for _ in range(3)] == [(7,)] * 3
        assert connections(llm) == [0, 0, 0]


def test_a_connection_that_its_server_closed_meanwhile_fails_no_turn(
    exchange: Exchange, turn: TurnRequest
) -> None:
    def respond(connection: int, request: int) -> bytes | None:
        return None if request == 1 else WHOLE

    with closing(CountingLLM(respond)) as llm:
        assert [ask(exchange, llm, turn) for _ in range(2)] == [(7,)] * 2
        assert connections(llm) == [0, 0, 1]
        assert len({request_id for _, request_id in llm.asked}) == 3


def test_a_server_that_started_again_on_its_port_is_asked_over_a_new_connection(
    exchange: Exchange, turn: TurnRequest
) -> None:
    with closing(CountingLLM(lambda connection, request: WHOLE)) as llm:
        ask(exchange, llm, turn)
    with closing(CountingLLM(lambda connection, request: WHOLE, llm.port)) as again:
        assert ask(exchange, again, turn) == (7,)
        assert connections(again) == [0]


@pytest.mark.parametrize(
    "answer", [CLOSING, OLD, WHOLE + b"x"], ids=["closing", "of HTTP 1.0", "more than an answer"]
)
def test_a_connection_that_does_not_go_on_is_used_once(
    exchange: Exchange, turn: TurnRequest, answer: bytes
) -> None:
    with closing(CountingLLM(lambda connection, request: answer)) as llm:
        assert [ask(exchange, llm, turn) for _ in range(2)] == [(7,)] * 2
        assert connections(llm) == [0, 1]


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE[:-1],
        WHOLE[:20],
        STREAM + chunk(ANSWER),
        STREAM + b"x\r\n",
        WHOLE.replace(b"Content-Length:", b"Content-Length :"),
        WHOLE.replace(b"Content-Length: ", b"Content-Length: 0x"),
        WHOLE.replace(b"OK\r\n", b"OK\r\nContent-Length: 1\r\n"),
    ],
)
def test_half_an_answer_over_a_kept_connection_is_no_reason_to_ask_again_unsaid(
    exchange: Exchange, turn: TurnRequest, answer: bytes
) -> None:
    def respond(connection: int, request: int) -> bytes | None:
        return WHOLE if request == 0 else LastWords(answer)

    with closing(CountingLLM(respond)) as llm:
        ask(exchange, llm, turn)
        with pytest.raises(Away):
            ask(exchange, llm, turn)
        assert connections(llm) == [0, 0]


@pytest.mark.parametrize("ended", [b"", b"0\r\n\r\n"], ids=["its end comes late", "whole"])
def test_the_connection_of_a_stream_that_was_heard_to_its_end_is_used_again(
    exchange: Exchange, turn: TurnRequest, ended: bytes
) -> None:
    said = chunk(b"data: " + ANSWER + b"\n\n") + chunk(b"data: [DONE]\n\n")
    late: list[socket.socket] = []

    with closing(CountingLLM(lambda connection, request: STREAM + said + ended)) as llm:
        heard: list[int] = []
        listening = msgspec.structs.replace(turn, hear=heard.extend)
        assert ask(exchange, llm, listening) == (7,)
        late += llm._open if not ended else []
        for client in late:
            client.sendall(b"0\r\n\r\n")
        assert ask(exchange, llm, listening) == (7,)
        assert (heard, connections(llm)) == ([7, 7], [0, 0])


def test_the_connection_of_a_stopped_request_is_closed(
    exchange: Exchange, turn: TurnRequest
) -> None:
    stop, asked = StopSignal(), threading.Event()

    def respond(connection: int, request: int) -> bytes | None:
        if request == 1:
            asked.set()
            stop.stop(StopReason.CANCELLED)
        return WHOLE

    with closing(CountingLLM(respond)) as llm:
        ask(exchange, llm, turn)
        with contextlib.suppress(Stopped):
            ask(exchange, llm, turn, stop)
        assert asked.is_set()
        until("the connection is closed", lambda: 0 in llm.left)
        assert ask(exchange, llm, turn) == (7,)


def test_a_stop_that_comes_with_the_end_of_a_kept_connection_is_obeyed(
    exchange: Exchange, turn: TurnRequest
) -> None:
    stop = StopSignal()

    def respond(connection: int, request: int) -> bytes | None:
        if request == 1:
            stop.stop(StopReason.PARKED)
            return None
        return WHOLE

    with closing(CountingLLM(respond)) as llm:
        ask(exchange, llm, turn)
        with pytest.raises((Stopped, Away)):
            ask(exchange, llm, turn, stop)


def test_idle_connections_are_few_and_are_closed_in_time(turn: TurnRequest) -> None:
    def connect(llm: CountingLLM) -> LLMConnection:
        connection = LLMConnection(AddressOfLLM.of(llm.url), 5.0)
        connection.send("POST", "/", b"{}", 5.0)
        assert connection.answer().content() == ANSWER
        return connection

    with closing(CountingLLM(lambda connection, request: WHOLE)) as llm:
        kept = KeptConnections(idle_seconds=0.5)
        for connection in [connect(llm) for _ in range(MAX_IDLE + 3)]:
            kept.keep(llm.url, connection)
        assert len(kept) <= MAX_IDLE
        until("none is kept any more", lambda: len(kept) == 0)
        until("all are closed", lambda: len(llm.left) == MAX_IDLE + 3)
        assert kept.take(llm.url) is None


def test_none_is_kept_behind_the_end(turn: TurnRequest) -> None:
    exchange = Exchange(connect_seconds=5.0, abort_seconds=5.0)
    with closing(CountingLLM(lambda connection, request: WHOLE)) as llm:
        ask(exchange, llm, turn)
        exchange.close()
        until("it is closed", lambda: llm.left == [0])
        ask(exchange, llm, turn)
        until("the next one is closed", lambda: llm.left == [0, 1])
