"""One caller's connection, from its first byte to its last, as the poller of the worker sees it.

- A request is read here without a thread; the thread that answers it gets head and body whole.
- A connection waits for something until `deadline` (monotonic seconds) and no longer.
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
from serving.lanes import Lane

HEAD_SECONDS = 10.0
"""From the first byte of a request to the end of its head; on a new connection, from the start."""
IDLE_SECONDS = 10.0
"""Between two pieces of a body."""
MIN_BYTES_PER_SECOND = 512 * 1024
"""Of a body, or of an answer, on average: who is slower than this beyond the grace is cut off."""
CLOSING_SECONDS = 2.0
"""For a caller to read the last answer before what it still sends is answered with a reset."""
MAX_HEAD_BYTES = 64 * 2**10
MAX_DISCARDED_BYTES = 128 * 2**20
PIECE_BYTES = 256 * 2**10


class Phase(Enum):
    """What the connection waits for."""

    HEAD = auto()
    ROOM = auto()
    """For memory for its body."""
    BODY = auto()
    ANSWER = auto()
    """A thread has it."""
    CLOSING = auto()
    """Everything is said."""


class Caller(socket.socket):
    """The caller's socket. A caller that reads too slowly is given up: `TimeoutError`."""

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        # Python's own deadline is for the whole of it, so it has to grow with what there is.
        self.settimeout(IDLE_SECONDS + memoryview(data).nbytes / MIN_BYTES_PER_SECOND)
        super().sendall(data, flags)


class Connection:
    def __init__(self, settings: Any, accepted: socket.socket, client: Any, server: Any) -> None:
        self.sock = Caller(fileno=accepted.detach())
        self.sock.setblocking(False)
        self.client = client
        self.server = server
        self.answered = False
        """A request of it was, so that it is worth more than one that never made any."""
        self.phase = Phase.HEAD
        self.deadline = time.monotonic() + HEAD_SECONDS
        self.request: Any = None
        """gunicorn's. Its `body` is a `Received`, unless the thread has to read it."""
        self.lane = Lane.CALLERS
        self.reserved_bytes = 0
        self._settings = settings
        self._received = bytearray()
        """What came and belongs to no request yet."""
        self._body = bytearray()
        self._filled = 0
        self._slowest = 0.0
        """When all of the body must be there."""
        self._streaming = False

    @property
    def peer(self) -> str:
        """The address that it comes from."""
        return str(self.client[0])

    @property
    def idle(self) -> bool:
        """Whether it is between two requests."""
        return self.phase is Phase.HEAD and not self._received

    def receive(self) -> bool:
        """Take in what has come; False at its end. Raises `BlockingIOError` if nothing has."""
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
        """Whether `request` is there now. Raises what gunicorn's parser raises for a bad one."""
        end = self._received.find(b"\r\n\r\n")
        head = self._received[:end] if end >= 0 else self._received
        if len(head) > MAX_HEAD_BYTES:
            if b"\r\n" not in head:
                raise LimitRequestLine(len(head), self._settings.limit_request_line)
            raise LimitRequestHeaders(f"it has more than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            if head.count(b"\n") != head.count(b"\r\n"):  # such a head never ends
                raise InvalidHeader("bare LF as line terminator")
            return False
        self.request = next(RequestParser(self._settings, self._pieces(), self.client))
        return True

    @property
    def body_bytes(self) -> int | None:
        """The length of the request's body; None if only its end will tell."""
        reader = self.request.body.reader
        if isinstance(reader, ChunkedReader):
            return None
        return reader.length if isinstance(reader, LengthReader) else 0

    def skip_body(self) -> None:
        """Answer without the body: where it ends is where the connection does."""
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
        """Leave the body to the thread."""
        self._streaming = True
        self._slowest = time.monotonic() + IDLE_SECONDS + self.reserved_bytes / MIN_BYTES_PER_SECOND
        self.request.force_close()

    @property
    def complete(self) -> bool:
        """Whether all of the body is there that the thread does not read itself."""
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
        """Say that nothing follows. A reset could overtake the last answer, so what still comes is
        thrown away for a while first. Raises `OSError`."""
        self.phase, self._filled = Phase.CLOSING, 0
        self.request, self._body = None, bytearray()
        self.sock.setblocking(False)
        self.sock.shutdown(socket.SHUT_WR)
        self.deadline = time.monotonic() + CLOSING_SECONDS

    def say(self, words: bytes) -> None:
        """Send what is short, without waiting."""
        with contextlib.suppress(OSError):
            self.sock.send(words)

    def _expect(self, length: int) -> None:
        now = time.monotonic()
        self.request._expected_100_continue = False  # gunicorn would say it once more
        self._received = bytearray(self.request.unreader.take_buffered())
        self.phase = Phase.BODY
        self._body = bytearray(length)
        self._filled = min(length, len(self._received))
        self._body[: self._filled] = self._received[: self._filled]
        del self._received[: self._filled]
        self._slowest = now + IDLE_SECONDS + length / MIN_BYTES_PER_SECOND
        self.deadline = now + IDLE_SECONDS

    def _pieces(self) -> Iterator[bytes]:
        """What gunicorn's parser reads: what is here, and nothing more unless it may wait."""
        yield bytes(self._received)
        while self._streaming:
            left = self._slowest - time.monotonic()
            if left <= 0:
                raise TimeoutError("the body came too slowly")
            self.sock.settimeout(min(left, IDLE_SECONDS))
            yield self.sock.recv(PIECE_BYTES)
