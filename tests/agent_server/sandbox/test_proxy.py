"""The proxy of sandboxes that may reach listed hosts."""

import socket
import threading
from collections.abc import Iterator

import pytest

from agent_server.sandbox.proxy import Proxy

HOST = "127.0.0.1"
"""Listed as an address: names that lead to such addresses are refused."""


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that says everything back."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            try:
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        while chunk := peer.recv(1 << 16):
                            peer.sendall(chunk)
            except OSError:
                pass  # closed

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture
def proxy() -> Iterator[int]:
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    serving = Proxy(listener, [HOST, "localhost"])
    yield port
    serving.close()


def ask(port: int, request: str) -> socket.socket:
    client = socket.create_connection((HOST, port), 10)
    client.sendall(request.encode())
    return client


def status(client: socket.socket) -> str:
    with client, client.makefile("rb") as answer:
        return answer.readline().decode().strip()


def test_a_listed_host_is_reached_and_what_is_said_passes(proxy: int, echo: int) -> None:
    client = ask(proxy, f"CONNECT {HOST}:{echo} HTTP/1.1\r\nHost: x\r\n\r\n")
    with client, client.makefile("rb") as answer:
        assert b" 200 " in answer.readline()
        assert answer.readline() == b"\r\n"
        client.sendall(b"x" * 300_000)
        assert answer.read(300_000) == b"x" * 300_000
        client.shutdown(socket.SHUT_WR)
        assert answer.read() == b""


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("CONNECT 127.0.0.2:{port} HTTP/1.1", "403"),
        ("CONNECT example.com:443 HTTP/1.1", "403"),
        ("CONNECT localhost:{port} HTTP/1.1", "403"),
        ("CONNECT 127.0.0.1@example.com:443 HTTP/1.1", "403"),
        ("CONNECT 127.0.0.1 HTTP/1.1", "405"),
        ("CONNECT 127.0.0.1:99999 HTTP/1.1", "405"),
        (f"CONNECT 127.0.0.1:{'9' * 5000} HTTP/1.1", "405"),
        ("GET http://127.0.0.1:{port}/ HTTP/1.1", "405"),
        ("", "405"),
    ],
)
def test_all_else_is_refused(proxy: int, echo: int, request_line: str, expected: str) -> None:
    client = ask(proxy, request_line.format(port=echo) + "\r\n\r\n")
    assert status(client).split()[1] == expected


def test_a_listed_host_that_does_not_answer_is_said_to(proxy: int) -> None:
    with socket.create_server((HOST, 0)) as listener:
        unused = listener.getsockname()[1]
    client = ask(proxy, f"CONNECT {HOST}:{unused} HTTP/1.1\r\n\r\n")
    assert status(client).split()[1] == "502"


def test_a_request_without_end_is_refused(proxy: int) -> None:
    assert status(ask(proxy, "CONNECT " + "x" * 9000)).split()[1] == "400"


def test_connections_end_with_the_proxy(echo: int) -> None:
    listener = socket.create_server((HOST, 0))
    serving = Proxy(listener, [HOST])
    with ask(listener.getsockname()[1], f"CONNECT {HOST}:{echo} HTTP/1.1\r\n\r\n") as client:
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        serving.close()
        assert client.recv(1) == b""
