"""The client's half of a WebSocket, against a peer that writes its bytes by hand."""

import base64
import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agent_server.websocket import MAX_MESSAGE_BYTES, WebSocket
from rollyard.errors import Unavailable
from tests.waiting import until

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
PATIENCE_SECONDS = 20.0


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._stream = connection.makefile("rb")

    def shake_hands(self, accept: str | None = None) -> str:
        """Answer the handshake, and return its first line."""
        lines = [line.decode().strip() for line in iter(self._stream.readline, b"\r\n")]
        key = next(
            line.partition(": ")[2] for line in lines if line.startswith("Sec-WebSocket-Key")
        )
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        self.connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"sec-websocket-accept: "
            + (accept or base64.b64encode(digest).decode()).encode()
            + b"\r\n\r\n"
        )
        return lines[0]

    def send(self, kind: int, payload: bytes, *, last: bool = True) -> None:
        length = len(payload)
        head = struct.pack("!B", kind | (0x80 if last else 0))
        if length < 126:
            head += struct.pack("!B", length)
        else:
            head += struct.pack("!BQ", 127, length)
        self.connection.sendall(head + payload)

    def receive(self) -> tuple[int, bytes]:
        """Kind and content of the next frame, which must be masked and whole."""
        first, second = self._stream.read(2)
        assert first & 0x80, "it is in parts"
        assert second & 0x80, "it is not masked"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._stream.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._stream.read(8))
        mask = self._stream.read(4)
        payload = self._stream.read(length)
        return first & 0x0F, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


@contextmanager
def listening(behave: Callable[[Peer], None]) -> Iterator[str]:
    """The URL of a server that does this with its one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behave(Peer(connection))

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def asked(behave: Callable[[Peer], None], message: str = "?") -> str:
    """The answer of such a server to a message."""

    def greet(peer: Peer) -> None:
        peer.shake_hands()
        behave(peer)

    with listening(greet) as url:
        connection = WebSocket(url, seconds=PATIENCE_SECONDS)
        try:
            return connection.exchange(message, seconds=PATIENCE_SECONDS)
        finally:
            connection.close()


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65535, 65536])
def test_a_message_of_any_length_comes_back_as_it_was(length: int) -> None:
    def echo(peer: Peer) -> None:
        kind, payload = peer.receive()
        peer.send(kind, payload)

    message = ("\x00ab~\n" * length)[:length]
    assert asked(echo, message) == message


def test_an_answer_may_come_in_parts_with_a_ping_between_them() -> None:
    heard = []

    def behave(peer: Peer) -> None:
        peer.receive()
        peer.send(TEXT, b"zw", last=False)
        peer.send(PING, b"there?")
        peer.send(0, "\u00f6lf".encode())
        heard.append(peer.receive())

    assert asked(behave) == "zw\u00f6lf"
    assert heard == [(PONG, b"there?")]


def test_a_ping_is_answered_while_nobody_asks() -> None:
    ponged = threading.Event()

    def behave(peer: Peer) -> None:
        peer.shake_hands()
        peer.send(PING, b"")
        assert peer.receive() == (PONG, b"")
        ponged.set()

    with listening(behave) as url:
        connection = WebSocket(url, seconds=PATIENCE_SECONDS)
        assert ponged.wait(PATIENCE_SECONDS)
        connection.close()


def test_the_path_and_the_query_of_the_url_are_asked_for() -> None:
    first = []
    with listening(lambda peer: first.append(peer.shake_hands())) as url:
        WebSocket(f"{url}/games/ws?seed=7", seconds=PATIENCE_SECONDS).close()
    assert first == ["GET /games/ws?seed=7 HTTP/1.1"]


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (lambda peer: None, "the server is gone"),
        (lambda peer: peer.send(CLOSE, b"\x03\xf3full"), "closed it with 1011 full"),
        (lambda peer: peer.send(CLOSE, b""), "the server closed it"),
        (lambda peer: peer.send(TEXT, b"\xff"), "can't decode"),
        (lambda peer: peer.connection.sendall(b"\x81\x80"), "masked"),
        (
            lambda peer: peer.connection.sendall(struct.pack("!BBQ", 0x81, 127, 1 << 40)),
            f"more than {MAX_MESSAGE_BYTES} bytes",
        ),
    ],
)
def test_a_server_that_goes_or_spoils_the_connection_is_unavailable(
    behave: Callable[[Peer], None], reason: str
) -> None:
    def after_the_question(peer: Peer) -> None:
        peer.receive()
        behave(peer)

    with pytest.raises(Unavailable, match=reason):
        asked(after_the_question)


def is_reader(thread: threading.Thread) -> bool:
    return thread.name == "websocket"


def test_what_a_server_says_before_it_goes_is_heard() -> None:
    def behave(peer: Peer) -> None:
        peer.shake_hands()
        peer.send(TEXT, b"full")
        peer.send(CLOSE, b"")

    with listening(behave) as url:
        connection = WebSocket(url, seconds=PATIENCE_SECONDS)
        until("the end of its reader", lambda: not any(map(is_reader, threading.enumerate())))
        assert connection.exchange("?", seconds=PATIENCE_SECONDS) == "full"


def test_after_a_late_answer_there_is_no_further_one() -> None:
    late = threading.Event()

    def behave(peer: Peer) -> None:
        peer.shake_hands()
        assert late.wait(PATIENCE_SECONDS)

    with listening(behave) as url:
        connection = WebSocket(url, seconds=PATIENCE_SECONDS)
        for reason in ("no answer in 0.01 s", "failed"):
            with pytest.raises(Unavailable, match=reason):
                connection.exchange("?", seconds=0.01)
        late.set()


def test_closing_ends_an_exchange_under_way() -> None:
    asking = threading.Event()

    def behave(peer: Peer) -> None:
        peer.shake_hands()
        peer.receive()
        asking.set()
        peer.connection.recv(1)  # until the client has gone

    with listening(behave) as url:
        connection = WebSocket(url, seconds=PATIENCE_SECONDS)

        def close() -> None:
            assert asking.wait(PATIENCE_SECONDS)
            connection.close()

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(Unavailable, match="the server is gone"):
            connection.exchange("?", seconds=PATIENCE_SECONDS)
        closer.join()
        connection.close()


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (lambda peer: None, "no WebSocket"),
        (lambda peer: peer.shake_hands(accept="nonsense"), "it answered 'HTTP/1.1 101"),
        (lambda peer: peer.connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n"), "404 Not Found"),
        (lambda peer: peer.connection.sendall(b"x" * (1 << 17)), "does not end"),
        (lambda peer: peer.connection.recv(1 << 16) and peer.connection.recv(1), "in time"),
    ],
)
def test_what_opens_no_websocket_is_unavailable(
    behave: Callable[[Peer], None], reason: str
) -> None:
    with listening(behave) as url, pytest.raises(Unavailable, match=reason):
        WebSocket(url, seconds=0.5)


def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unavailable, match=f"no WebSocket with http://127.0.0.1:{port}"):
        WebSocket(f"http://127.0.0.1:{port}/ws", seconds=PATIENCE_SECONDS)
