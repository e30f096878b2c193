"""A caller's connection on the proxy's event loop, from its first byte to its last.

- A request is answered once all of it is there; one after the other. A caller that hangs up ends
  its request.
- A connection waits for its caller until a deadline: for the head, for the body, for the end of an
  answer that it reads slowly, and for the next request.
- A body must tell its length. One that is not to be read is left unread, and the connection is
  closed behind the answer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Protocol

import msgspec

from llm_servers.http_heads import BadHead, Fields, HeadTooLarge, read_fields
from serving.callers import IDLE_SECONDS, MIN_BYTES_PER_SECOND
from serving.connection import (
    CLOSING_SECONDS,
    HEAD_SECONDS,
    MAX_DISCARDED_BYTES,
    MAX_HEAD_BYTES,
)
from serving.refusals import LATE, NO_ROOM, say_refusal

KEEP_SECONDS = 60.0
"""Time between two requests of a connection."""
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")


class CallerHead(msgspec.Struct, frozen=True):
    """The head of a request."""

    method: str
    target: str
    version: str
    fields: Fields
    length: int
    """Bytes of its body."""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def closes(self) -> bool:
        """Whether the caller takes one answer and no more."""
        wishes = self.fields.get("connection", "").lower()
        return "close" in wishes if self.version == "HTTP/1.1" else wishes != "keep-alive"


class CallerRequest(msgspec.Struct, frozen=True):
    head: CallerHead
    body: bytes
    peer: str


class Reception(Protocol):
    """Who answers the requests of all connections. It is called on the event loop."""

    def enter(self, caller: "CallerConnection") -> bool:
        """Whether there is room for the connection."""
        ...

    def leave(self, caller: "CallerConnection") -> None: ...

    def body_bytes(self, head: CallerHead) -> int | None:
        """The bytes of the body to read; 0 if it is to be left, None if there is no room now."""
        ...

    def free(self, body_bytes: int) -> None:
        """A body that was read is needed no longer."""
        ...

    def answer(
        self, request: CallerRequest, caller: "CallerConnection"
    ) -> Coroutine[None, None, None]: ...


class CallerConnection(asyncio.Protocol):
    def __init__(self, reception: Reception) -> None:
        self.answered = False
        self.peer = ""
        self.loop = asyncio.get_running_loop()
        self._reception = reception
        self._transport: asyncio.Transport
        self._received = bytearray()
        """Bytes that belong to no request yet."""
        self._head: CallerHead | None = None
        self._wanted = 0
        """Bytes of the body under way that are read."""
        self.task: asyncio.Task[None] | None = None
        """The answer under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._discarded: int | None = None
        """Bytes that came after the last answer; None before it."""
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        if self._reception.enter(self):
            self._await(HEAD_SECONDS)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED_BYTES:
                self.close()
            return
        if self._head is None and not self._received and not self.busy:
            self._await(HEAD_SECONDS)
        self._received += data
        if not self.busy:
            self._advance()
        elif len(self._received) > MAX_HEAD_BYTES:
            self._transport.pause_reading()  # until the request under way is answered

    def connection_lost(self, error: Exception | None) -> None:
        self._await(None)
        self._may_write.set()
        if self.task is not None:
            self.task.cancel()
        elif self._head is not None:
            self._reception.free(self._wanted)
        self._reception.leave(self)

    def pause_writing(self) -> None:
        self._may_write.clear()
        self._await(IDLE_SECONDS + self._unsent_seconds, self.close)

    def resume_writing(self) -> None:
        self._await(None if self.busy else KEEP_SECONDS)
        self._may_write.set()

    def send(self, status: int, fields: str, content: bytes) -> None:
        """Send a whole answer. `fields` are those of its head but for the length."""
        head = self._answer_head(status, f"{fields}Content-Length: {len(content)}\r\n")
        self._transport.write(head + content)

    def begin_stream(self, status: int, fields: str) -> None:
        """Begin an answer whose content comes in pieces."""
        chunks = "Transfer-Encoding: chunked\r\n" if self._takes_chunks else "Connection: close\r\n"
        self._transport.write(self._answer_head(status, fields + chunks))

    async def stream(self, piece: bytes) -> None:
        """Send a piece, and wait while the caller reads too slowly."""
        if piece:
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if self._takes_chunks else piece
            self._transport.write(chunk)
        if not self._may_write.is_set():
            await self._may_write.wait()

    def end_stream(self) -> None:
        if self._takes_chunks:
            self._transport.write(b"0\r\n\r\n")

    def close(self) -> None:
        """Cut the connection off, in the middle of an answer too."""
        self._transport.abort()

    def leave_off(self) -> None:
        """Take no further request."""
        if self.busy:
            self._head = _closing(self._head)
        else:
            self.close()

    @property
    def _unsent_seconds(self) -> float:
        """The longest that a caller may take for what it was not sent yet."""
        return self._transport.get_write_buffer_size() / MIN_BYTES_PER_SECOND

    @property
    def _takes_chunks(self) -> bool:
        return self._head is not None and self._head.version == "HTTP/1.1"

    def _answer_head(self, status: int, fields: str) -> bytes:
        closes = "Connection: close\r\n" if self._head is None or self._head.closes else ""
        phrase = HTTPStatus(status).phrase if status in _STATUSES else ""
        return f"HTTP/1.1 {status} {phrase}\r\n{fields}{closes}\r\n".encode("latin-1")

    def _advance(self) -> None:
        """Process what has been received."""
        if self._head is None and not self._read_head():
            return
        head = self._head
        if head is None or len(self._received) < self._wanted:
            return
        body = bytes(memoryview(self._received)[: self._wanted])
        del self._received[: self._wanted]
        self._await(None)
        self.task = self.loop.create_task(self._answer(CallerRequest(head, body, self.peer)))

    async def _answer(self, request: CallerRequest) -> None:
        try:
            await self._reception.answer(request, self)
        finally:
            self._reception.free(self._wanted)
            self.task = None
        self._go_on()

    def _go_on(self) -> None:
        """Take the next request, which may be there."""
        head, self._head = self._head, None
        self.answered = True
        if head is None or head.closes or self._wanted < head.length:
            self._end()
            return
        self._wanted = 0
        self._await(HEAD_SECONDS if self._received else KEEP_SECONDS)
        self._transport.resume_reading()
        self._advance()

    def _read_head(self) -> bool:
        """Whether there is a head, and so a body to wait for."""
        end = self._received.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._received) > MAX_HEAD_BYTES):
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "its head is too large")
            return False
        if end < 0:
            return False
        first, *lines = bytes(memoryview(self._received)[:end]).split(b"\r\n")
        del self._received[: end + 4]
        try:
            head = _read(first, lines)
        except HeadTooLarge as error:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(error))
            return False
        except BadHead as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"not a valid HTTP request: {error}")
            return False
        return self._expect_body(head)

    def _expect_body(self, head: CallerHead) -> bool:
        wanted = self._reception.body_bytes(head)
        if wanted is None:
            self._transport.write(NO_ROOM)
            self._end()
            return False
        self._head, self._wanted = head, wanted
        if wanted and head.fields.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._await(IDLE_SECONDS + wanted / MIN_BYTES_PER_SECOND)
        return True

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._transport.write(say_refusal(status, message))
        self._end()

    def _late(self) -> None:
        if self._received or self._head is not None:
            self._transport.write(LATE)
            self._end()
        else:
            self.close()

    def _end(self) -> None:
        """Close the connection once the caller has had time to read the answer."""
        # Closing with unread input makes the system send a reset, which may overtake the answer.
        if self._head is not None and not self.busy:
            self._reception.free(self._wanted)
        self._head, self._discarded = None, 0
        self._received.clear()
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._transport.can_write_eof():  # TLS has no half of a connection
            self._transport.write_eof()
        self._await(CLOSING_SECONDS + self._unsent_seconds, self.close)

    def _await(self, seconds: float | None, late: Callable[[], None] | None = None) -> None:
        """Wait for the caller for so long, and no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, late or self._late)


_STATUSES = frozenset(HTTPStatus)


def _closing(head: CallerHead | None) -> CallerHead | None:
    if head is None:
        return None
    return msgspec.structs.replace(head, fields={**head.fields, "connection": "close"})


def _read(first: bytes, lines: list[bytes]) -> CallerHead:
    """The head in these lines. Raises `BadHead`."""
    words = first.split(b" ")
    if len(words) != 3 or not all(words) or words[2] not in _VERSIONS or not first.isascii():
        raise BadHead(f"no request of HTTP/1.1: {first[:80]!r}")
    fields = read_fields(lines)
    told = fields.get("content-length", "0")
    if "transfer-encoding" in fields or not (told.isascii() and told.isdigit()) or len(told) > 18:
        raise BadHead("it does not tell its length: send one Content-Length")
    return CallerHead(words[0].decode(), words[1].decode(), words[2].decode(), fields, int(told))
