"""The client's half of a WebSocket (RFC 6455) over which texts are asked and answered in turn.

- Owns a socket and the thread that reads it, which also answers the server's pings: servers end a
  connection whose client is silent, and a policy may take minutes for its next response.
- Whatever goes wrong is `Unavailable`; after that, and after `close`, so is every exchange.
- `close` may be called from any thread, and ends the exchange under way.
"""

import base64
import contextlib
import hashlib
import os
import queue
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

from rollyard.errors import Unavailable
from rollyard.trust import ca_file_for, trusting

MAX_MESSAGE_BYTES = 16 << 20

_CONTINUATION, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10
_FINAL = _MASKED = 0x80
_IN_2_BYTES, _IN_8_BYTES = 126, 127
"""Lengths that say where the real one stands."""
_MAX_HEAD_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_ACCEPT_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_PORTS = {"http": 80, "https": 443}


class WebSocket:
    """A connection with a server. One exchange follows the other."""

    def __init__(self, url: str, *, seconds: float) -> None:
        """Connect to an http or https URL in this time. Raises `Unavailable`."""
        self._url = url
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """Messages of the server, and None once there will be no more."""
        self._end = "it was closed"
        try:
            self._stream = _Stream(url, seconds)
        except (OSError, ValueError) as error:  # ValueError: the server speaks something else
            raise Unavailable(f"no WebSocket with {url}: {error}") from error
        threading.Thread(target=self._read, name="websocket", daemon=True).start()

    def exchange(self, message: str, *, seconds: float) -> str:
        """Send a message and return the server's next one. Raises `Unavailable`."""
        try:
            self._stream.send(_TEXT, message.encode())
        except OSError:
            self.close()  # what the server said before it went is still among the answers
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()  # what comes later would answer another question
            raise self._broken(f"no answer in {seconds:g} s") from None
        if answer is None:
            self._answers.put(None)
            raise self._broken(self._end)
        return answer

    def close(self) -> None:
        """End the connection; a second call changes nothing."""
        self._stream.shut_down()

    def _broken(self, reason: str) -> Unavailable:
        return Unavailable(
            f"the WebSocket with {self._url} failed: {reason}", fix="its server's log says why"
        )

    def _read(self) -> None:
        try:
            for message in self._messages():
                self._answers.put(message)
        except (OSError, ValueError) as error:
            self._end = str(error)
        finally:
            self._answers.put(None)
            self._stream.close()

    def _messages(self) -> Iterator[str]:
        parts: list[bytes] = []
        while True:
            kind, is_last, payload = self._stream.frame()
            if kind == _CLOSE:
                raise ConnectionResetError(f"the server closed it{_reason(payload)}")
            if kind == _PING:
                self._stream.send(_PONG, payload)
            elif kind in (_TEXT, _CONTINUATION):
                parts.append(payload)
                if sum(map(len, parts)) > MAX_MESSAGE_BYTES:
                    raise ValueError(f"a message has more than {MAX_MESSAGE_BYTES} bytes")
                if is_last:
                    yield b"".join(parts).decode()
                    parts.clear()


class _Stream:
    """Owns the socket. One thread reads frames while others send some."""

    def __init__(self, url: str, seconds: float) -> None:
        """Raises `OSError`, and `ValueError` for a server that opens no WebSocket."""
        self._seconds = seconds
        self._ends_at: float | None = time.monotonic() + seconds
        """Time until which a read may wait; None for ever."""
        self._turn = threading.Lock()
        """Lock for the socket: two threads may not be inside TLS at once."""
        self._ahead = b""
        self._socket = _connected(url, seconds)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        try:
            self._shake_hands(url)
        except BaseException:
            self._socket.close()
            raise
        self._ends_at = None

    def send(self, kind: int, payload: bytes) -> None:
        with self._turn:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(_frame(kind, payload))

    def frame(self) -> tuple[int, bool, bytes]:
        """Kind of the next frame, whether it is the last of its message, and its content."""
        first, second = self._exactly(2)
        length = second & ~_MASKED
        if length == _IN_2_BYTES:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == _IN_8_BYTES:
            (length,) = struct.unpack("!Q", self._exactly(8))
        if second & _MASKED or length > MAX_MESSAGE_BYTES:
            raise ValueError(f"a frame is masked, or has more than {MAX_MESSAGE_BYTES} bytes")
        return first & 0x0F, bool(first & _FINAL), self._exactly(length)

    def shut_down(self) -> None:
        """Wake the thread that reads, with an `OSError`."""
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self, url: str) -> None:
        parts, key = urlsplit(url), base64.b64encode(os.urandom(16)).decode()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
            f"Sec-WebSocket-Key: {key}",
        )
        self._socket.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        first, *others = self._head().split("\r\n")
        headers = dict(map(_header, others))
        digest = hashlib.sha1((key + _ACCEPT_SUFFIX).encode(), usedforsecurity=False).digest()
        accepted = headers.get("sec-websocket-accept") == base64.b64encode(digest).decode()
        if f" {HTTPStatus.SWITCHING_PROTOCOLS.value} " not in f"{first} " or not accepted:
            raise ValueError(f"it answered {first!r}")

    def _head(self) -> str:
        while b"\r\n\r\n" not in self._ahead:
            if len(self._ahead) > _MAX_HEAD_BYTES:
                raise ValueError("the answer to the handshake does not end")
            self._ahead += self._more()
        head, _, self._ahead = self._ahead.partition(b"\r\n\r\n")
        return head.decode("latin-1")

    def _exactly(self, count: int) -> bytes:
        pieces, have = [self._ahead], len(self._ahead)
        while have < count:
            pieces.append(self._more())
            have += len(pieces[-1])
        everything = b"".join(pieces)
        self._ahead = everything[count:]
        return everything[:count]

    def _more(self) -> bytes:
        while True:
            with self._turn, contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                self._socket.settimeout(0.0)
                if chunk := self._socket.recv(_CHUNK_BYTES):
                    return chunk
                raise ConnectionResetError("the server is gone")
            left = None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())
            if not self._readable.poll(None if left is None else left * 1000):
                raise TimeoutError("it was not opened in time")


def _connected(url: str, seconds: float) -> socket.socket:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    connection = socket.create_connection((host, port), timeout=seconds)
    if parts.scheme == "http":
        return connection
    try:
        return trusting(ca_file_for(url)).wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def _frame(kind: int, payload: bytes) -> bytes:
    """A whole message in one frame, masked as those of clients are."""
    length, mask = len(payload), os.urandom(4)
    if length < _IN_2_BYTES:
        head = struct.pack("!BB", _FINAL | kind, _MASKED | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", _FINAL | kind, _MASKED | _IN_2_BYTES, length)
    else:
        head = struct.pack("!BBQ", _FINAL | kind, _MASKED | _IN_8_BYTES, length)
    key = int.from_bytes((mask * (length // 4 + 1))[:length])
    return head + mask + (int.from_bytes(payload) ^ key).to_bytes(length)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _reason(payload: bytes) -> str:
    """What a frame says that closes: a code of two bytes and, perhaps, a sentence."""
    if len(payload) < 2:
        return ""
    code, said = int.from_bytes(payload[:2]), payload[2:].decode(errors="replace")
    return f" with {code} {said}".rstrip()
