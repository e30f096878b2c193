"""The gateway's door: keys, clients that hang up, and requests that are none."""

import errno
import http.client
import itertools
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import Stopped, StopSignal
from agent_server.gateway.door import MAX_CONNECTIONS
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.routes import MAX_BODY_BYTES
from agent_server.gateway.session import GatewaySession
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import Limits
from tests.agent_server.fakes import PATIENCE_SECONDS, NeverAnswers, Says
from tests.agent_server.gateway.conftest import Client, MakeTask

PATH = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def create(kind: type[socket.socket]) -> Callable[..., socket.socket]:
    """`socket.create_server` for sockets of this kind."""

    def create_server(address: tuple[str, int], *, backlog: int) -> socket.socket:
        listener = kind()
        listener.bind(address)
        listener.listen(backlog)
        return listener

    return create_server


def raw(session: GatewaySession, sent: bytes) -> bytes:
    """All that is answered to these bytes."""
    address = ("127.0.0.1", int(session.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_only_the_sessions_key_opens_it(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        client = Client(session)
        client.key = "another"
        for refused in (client.post(PATH, ASK), client.get("/v1/models")):
            assert refused.status_code == 401
            assert refused.json()["error"]["type"] == "authentication_error"
        keyless = requests.post(f"{session.url}{PATH}", json=ASK, timeout=20)
        assert keyless.status_code == 401


def test_a_key_opens_nothing_once_its_session_is_over(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template, "yes")), StopSignal()) as session:
        client = Client(session)
        assert client.post(PATH, ASK).status_code == 200
        kept = http.client.HTTPConnection(session.url.removeprefix("http://"))
        kept.request("GET", "/v1/models")  # from now on somebody is there to answer
        assert kept.getresponse().read()
    with pytest.raises(requests.ConnectionError):
        client.post(PATH, ASK)
    kept.request("GET", "/v1/models", headers={"x-api-key": session.key})
    assert kept.getresponse().status == 401
    kept.close()


def test_a_session_that_is_full_keeps_nobody_out_of_another(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with (
        gateway.open(make_task(Says(template)), StopSignal()) as crowded,
        gateway.open(make_task(Says(template)), StopSignal()) as other,
        ExitStack() as inside,
    ):
        address = ("127.0.0.1", int(crowded.url.rpartition(":")[2]))
        for _ in range(MAX_CONNECTIONS):
            inside.enter_context(socket.create_connection(address))
        refused = inside.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        assert refused.recv(1) == b""
        assert Client(other).get("/v1/models").status_code == 200


def test_a_shortage_of_threads_or_files_turns_nobody_away_for_good(
    gateway: Gateway,
    make_task: MakeTask,
    template: ChatTemplate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, until = itertools.count(), time.monotonic() + 0.2

    class Shortage(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if next(tries) and time.monotonic() < until:
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    class NoThread(threading.Thread):
        def start(self) -> None:
            monkeypatch.undo()
            raise RuntimeError("can't start new thread")

    with gateway.open(make_task(Says(template)), StopSignal()) as first:
        monkeypatch.setattr("agent_server.gateway.door.threading.Thread", NoThread)
        with pytest.raises(requests.ConnectionError):
            Client(first).get("/v1/models")
        assert Client(first).get("/v1/models").status_code == 200
        monkeypatch.setattr("agent_server.gateway.door.socket.create_server", create(Shortage))
        monkeypatch.setattr("agent_server.gateway.door.SHORTAGE_SECONDS", 0.05)
        with gateway.open(make_task(Says(template)), StopSignal()) as second:
            for _ in range(2):
                assert Client(second).get("/v1/models").status_code == 200
    assert next(tries) < 12, "it did not wait for a file"


def test_there_is_one_model(gateway: Gateway, make_task: MakeTask, template: ChatTemplate) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        client = Client(session)
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["policy"]
        assert client.get("/v1/models/policy").json()["id"] == "policy"
        assert client.get("/v1/else").status_code == 404
        assert client.post("/jobs", ASK).status_code == 404


class AnnouncesItsEnd(NeverAnswers):
    def __init__(self) -> None:
        super().__init__()
        self.stopped = threading.Event()

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        try:
            return super().generate(request, stop)
        except Stopped:
            self.stopped.set()
            raise


def test_a_client_that_hangs_up_ends_its_request(gateway: Gateway, make_task: MakeTask) -> None:
    policy = AnnouncesItsEnd()
    with gateway.open(make_task(policy), StopSignal()) as session:
        client = http.client.HTTPConnection(session.url.removeprefix("http://"))
        body = b'{"messages": [{"role": "user", "content": "hi"}]}'
        client.request("POST", PATH, body, {"Authorization": f"Bearer {session.key}"})
        assert policy.asked.wait(PATIENCE_SECONDS)
        client.close()
        assert policy.stopped.wait(PATIENCE_SECONDS)


def test_a_limit_is_told_as_such(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    task = make_task(Says(template), Limits(max_turns=1, max_tokens=8))
    with gateway.open(task, StopSignal()) as session:
        error = Client(session).post(PATH, ASK).json()["error"]
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"PUT /v1/models HTTP/1.1\r\n\r\n", 405),
        (b"POST /v1/models HTTP/1.1\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}", 400),
        (b"POST /v1/models HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\n{}", 400),
        (b"GET http://[::1 HTTP/1.1\r\nConnection: close\r\n\r\n", 401),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n and more\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nContent-Length : 2\r\n\r\n{}", 400),
        (b"GET / HTTP/1.1\r\na: b\rContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: \0\r\n\r\n", 400),
        (b"GET / HTTP/1.1 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /v1/models\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, sent: bytes, status: int
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        answer = raw(session, sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b'{"error":' in answer


@pytest.mark.parametrize(
    "told",
    [
        b"Transfer-Encoding: chunked",
        b"Content-Length: 0\r\nContent-Length: 9",
        b"Content-Length: 9",
    ],
)
def test_a_body_that_is_not_read_is_no_request(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, told: bytes
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        inside = b"GET /v1/models HTTP/1.1\r\n\r\n"
        answer = raw(session, b"GET /v1/models HTTP/1.1\r\n" + told + b"\r\n\r\n" + inside)
    assert answer.count(b"HTTP/1.1 401 ") == 1


def test_a_client_that_asks_first_is_told_to_go_on(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template, "yes")), StopSignal()) as session:
        head = f"POST {PATH} HTTP/1.1\r\nX-API-Key: {session.key}\r\nConnection: close\r\n"
        body = b'{"messages": [{"role": "user", "content": "hi"}]}'
        asks = f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        address = ("127.0.0.1", int(session.url.rpartition(":")[2]))
        with socket.create_connection(address, PATIENCE_SECONDS) as client:
            client.sendall(asks.encode() + body)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_a_refused_method_is_told_which_are_not(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        answer = raw(session, b"DELETE /v1/models HTTP/1.1\r\n\r\n")
    assert b"\r\nAllow: GET, POST\r\n" in answer


class TellsAtOnce(Says):
    """A policy that lets its response be heard before it is complete."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        said = super().generate(request, stop)
        assert request.hear is not None
        request.hear(said.token_ids)
        return said


def test_a_stream_to_a_client_that_knows_no_chunks_ends_with_its_connection(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true}'
    with gateway.open(make_task(TellsAtOnce(template, "yes")), StopSignal()) as session:
        head = f"POST {PATH} HTTP/1.0\r\nx-api-key: {session.key}\r\nContent-Length: {len(body)}"
        address = ("127.0.0.1", int(session.url.rpartition(":")[2]))
        with socket.create_connection(address, PATIENCE_SECONDS) as client:
            client.sendall(head.encode() + b"\r\n\r\n" + body)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
    head_told, _, events = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head_told
    assert all(line.startswith(b"data: ") for line in events.split(b"\n\n")[:-1])
    assert events.endswith(b"data: [DONE]\n\n")


def test_a_closed_gateway_leaves_nothing(make_task: MakeTask, template: ChatTemplate) -> None:
    gateway = Gateway()
    session = gateway.open(make_task(Says(template)), StopSignal())
    gateway.close()
    with pytest.raises(requests.ConnectionError):
        Client(session).get("/v1/models")
