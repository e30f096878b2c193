"""One caller's connection, from its first byte to its last.

- A request is read without a thread; the thread that answers it gets head and body complete.
- A connection waits for its caller until `deadline` (monotonic seconds) and no longer.
- Only a body without a length is read by the thread itself; see `stream_body`.
"""

import contextlib
import socket
import time
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from gunicorn.http.body import ChunkedReader, LengthReader
from gunicorn.http.errors import InvalidHeader, LimitRequestHeaders, LimitRequestLine
from gunicorn.http.parser import RequestParser

from serving.bodies import Received
from serving.callers import IDLE_SECONDS, Caller, TLSCaller, seconds_for
from serving.lanes import Lane
from serving.tls import HANDSHAKE, ServerTLS, begin_session

HEAD_SECONDS = 10.0
"""Time for the head of a request, from its first byte; on a new connection, from the start, with
the handshake if there is one."""
CLOSING_SECONDS = 2.0
"""Time for a caller to read the last answer, before anything it still sends causes a reset."""
MAX_HEAD_BYTES = 64 * 2**10
MAX_DISCARDED_BYTES = 128 * 2**20
PIECE_BYTES = 256 * 2**10


class Phase(Enum):
    """State of a connection, by what it waits for."""

    HANDSHAKE = auto()
    """Waiting for TLS to begin."""
    HEAD = auto()
    ROOM = auto()
    """Waiting for memory for its body."""
    BODY = auto()
    ANSWER = auto()
    """Owned by a thread, which answers the request."""
    CLOSING = auto()
    """Waiting for the caller to close, after the last answer."""


class Connection:
    def __init__(
        self,
        settings: Any,
        accepted: socket.socket,
        client: Any,
        server: Any,
        tls: ServerTLS | None = None,
    ) -> None:
        self.sock: Caller | TLSCaller = Caller(fileno=accepted.detach())
        self.sock.setblocking(False)
        self.tls = tls
        self.client = client
        self.server = server
        self.answered = False
        """True once a request of it was answered: it is closed after those never answered."""
        self.watched = False
        """True while the poller looks for what it sends."""
        self.phase = Phase.HEAD if tls is None else Phase.HANDSHAKE
        self.deadline = time.monotonic() + HEAD_SECONDS
        self.request: Any = None
        """gunicorn's request. Its `body` is a `Received`, unless the thread has to read it."""
        self.lane = Lane.CALLERS
        self.reserved_bytes = 0
        self._settings = settings
        self._received = bytearray()
        """Bytes received that belong to no request yet."""
        self._body = bytearray()
        self._filled = 0
        self._slowest = 0.0
        """Deadline for the whole body, in monotonic seconds."""
        self._streaming = False

    @property
    def peer(self) -> str:
        """Address of the caller."""
        return str(self.client[0])

    @property
    def closed(self) -> bool:
        return self.sock.fileno() < 0

    @property
    def idle(self) -> bool:
        """Whether it is between two requests."""
        return self.phase is Phase.HEAD and not self._received

    @property
    def has_more(self) -> bool:
        """Whether something has come that the poller does not see: the rest of a record of TLS, of
        which only the beginning was needed."""
        return isinstance(self.sock, TLSCaller) and self.sock.pending() > 0

    def shake_hands(self) -> None:
        """Go on with the handshake, as far as that goes without waiting. Raises `NoHandshake`,
        `ssl.SSLWantReadError` and `ssl.SSLWantWriteError`, and `OSError` when it has failed."""
        assert self.tls is not None
        if not isinstance(self.sock, TLSCaller):
            self.sock = begin_session(self.sock, self.tls)
        self.sock.do_handshake()
        self.phase = Phase.HEAD

    def receive(self) -> bool:
        """Take in what has come. False if the caller has closed, or sends too much after the last
        answer. Raises `BlockingIOError` or `ssl.SSLWantReadError` if nothing has come."""
        if self.phase is Phase.BODY:
            rest = memoryview(self._body)[self._filled : self._filled + PIECE_BYTES]
            number = self.sock.recv_into(rest)
            self._filled += number
            self.deadline = min(self._slowest, time.monotonic() + IDLE_SECONDS)
            return number > 0
        piece = self.sock.recv(PIECE_BYTES)
        if self.phase is Phase.CLOSING:
            self._filled += len(piece)
            return bool(piece) and self._filled < MAX_DISCARDED_BYTES
        if self.idle:
            self.deadline = time.monotonic() + HEAD_SECONDS
        self._received += piece
        return bool(piece)

    def parse_head(self) -> bool:
        """Whether the head is complete, and so `request` is set. Raises gunicorn's errors if the
        head is invalid."""
        if self._received.startswith(HANDSHAKE):  # nothing would end it
            raise InvalidHeader("TLS, on a port without it")
        end = self._received.find(b"\r\n\r\n")
        head = self._received[:end] if end >= 0 else self._received
        if len(head) > MAX_HEAD_BYTES:
            if b"\r\n" not in head:
                raise LimitRequestLine(len(head), self._settings.limit_request_line)
            raise LimitRequestHeaders(f"it has more than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            if head.count(b"\n") != head.count(b"\r\n"):  # its end would never be found
                raise InvalidHeader("bare LF as line terminator")
            return False
        self.request = next(RequestParser(self._settings, self._pieces(), self.client))
        if self.tls is not None:
            self.request.scheme = "https"
        return True

    @property
    def body_bytes(self) -> int | None:
        """Length of the request's body; None for a chunked one, whose length only its end tells."""
        reader = self.request.body.reader
        if isinstance(reader, ChunkedReader):
            return None
        return reader.length if isinstance(reader, LengthReader) else 0

    def skip_body(self) -> None:
        """Answer without reading the body; the connection is closed after the answer."""
        self._expect(0)
        if self.body_bytes != 0:
            self.request.force_close()

    def await_room(self, seconds: float) -> None:
        """Wait for memory for the body."""
        self.phase = Phase.ROOM
        self.deadline = time.monotonic() + seconds

    def expect_body(self) -> None:
        """Wait for the body, of which some may be there."""
        if self.request._expected_100_continue:
            self.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expect(self.body_bytes or 0)

    def stream_body(self) -> None:
        """Leave reading the body to the thread that answers."""
        self._streaming = True
        self._slowest = time.monotonic() + seconds_for(self.reserved_bytes)
        self.request.force_close()

    @property
    def complete(self) -> bool:
        """Whether the body is there, or is left to the thread."""
        return self._filled == len(self._body)

    def hand_over(self) -> None:
        """Give the request to a thread."""
        self.phase = Phase.ANSWER
        self.sock.setblocking(True)
        if not self._streaming:
            self.request.body = Received(self._body)

    def await_request(self, seconds: float) -> None:
        """The request is answered; the next may begin within `seconds`, or has begun."""
        self.phase, self.answered, self.request = Phase.HEAD, True, None
        self._body, self._filled = bytearray(), 0
        self.sock.setblocking(False)
        self.deadline = time.monotonic() + (HEAD_SECONDS if self._received else seconds)

    def await_end(self) -> None:
        """Shut down our side, and discard what still comes for a while. Raises `OSError`."""
        # Closing with unread input makes the system send a reset, which may overtake the answer.
        self.phase, self._filled = Phase.CLOSING, 0
        self.request, self._body = None, bytearray()
        self.sock.setblocking(False)
        if isinstance(self.sock, TLSCaller):
            self.sock.say_goodbye()
        self.sock.shutdown(socket.SHUT_WR)
        self.deadline = time.monotonic() + CLOSING_SECONDS

    def say(self, words: bytes) -> None:
        """Send a short answer without waiting; one that does not fit is lost."""
        with contextlib.suppress(OSError):
            self.sock.send(words)

    def _expect(self, length: int) -> None:
        now = time.monotonic()
        self.request._expected_100_continue = False  # else gunicorn sends it a second time
        self._received = bytearray(self.request.unreader.take_buffered())
        self.phase = Phase.BODY
        self._body = bytearray(length)
        self._filled = min(length, len(self._received))
        self._body[: self._filled] = self._received[: self._filled]
        del self._received[: self._filled]
        self._slowest = now + seconds_for(length)
        self.deadline = now + IDLE_SECONDS

    def _pieces(self) -> Iterator[bytes]:
        """Input of gunicorn's parser: what was received and, if streaming, what still comes."""
        yield bytes(self._received)
        while self._streaming:
            left = self._slowest - time.monotonic()
            if left <= 0:
                raise TimeoutError("the body came too slowly")
            self.sock.settimeout(min(left, IDLE_SECONDS))
            yield self.sock.recv(PIECE_BYTES)
