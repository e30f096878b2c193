"""One connection of a client: HTTP, as `http.server` speaks it, but for the heads.

- It waits for its client for `IDLE_SECONDS` and no longer.
- A client that hangs up ends its request.
- A stream is told in chunks, as its events come; to a client of HTTP 1.0 until the connection ends.
"""

import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from agent_server.control.stop import StopSignal
from agent_server.gateway.hangups import Hangups
from agent_server.gateway.keep_alive import Reminder
from agent_server.gateway.routes import EVENT_STREAM, MAX_BODY_BYTES, GatewayRoutes, Reply, key_of
from llm_servers.http_heads import MAX_LINE_BYTES, BadHead, Fields, HeadTooLarge, read_fields
from rollyard.errors import InvalidMessage, RollyardError, TooLarge

IDLE_SECONDS = 75.0
"""Time between two pieces of a request, or between two requests of a connection."""
_MAX_DISCARDED_BYTES = 128 * 2**20
_PIECE_BYTES = 2**18
_LENGTH = re.compile("[0-9]{1,18}")
"""A Content-Length; one of more digits is no number to Python."""
_VERSION = re.compile(r"HTTP/([0-9])\.[0-9]")
_STATUSES: dict[int, int] = {
    HTTPStatus.NOT_IMPLEMENTED: HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: HTTPStatus.BAD_REQUEST,
}
"""Statuses of errors that are the client's, and not the server's as `http.server` has it."""


class ClientConnection(BaseHTTPRequestHandler):
    """One connection, which is served from its first request to its last."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    raw_requestline: bytes
    disable_nagle_algorithm = True  # the tokens of a stream are small packets

    def __init__(
        self,
        routes: GatewayRoutes,
        hangups: Hangups,
        keep_alive: Reminder,
        connection: socket.socket,
    ) -> None:
        self._routes = routes
        self._hangups = hangups
        self._keep_alive = keep_alive
        self._fields: Fields = {}
        super().__init__(connection, None, None)  # type: ignore[arg-type]  # it reads neither

    def do_GET(self) -> None:
        if "transfer-encoding" in self._fields or self._fields.get("content-length", "0") != "0":
            self.close_connection = True  # its body is not read, and is no request
        self._send(self._routes.get(self._path(), key_of(self._fields)))

    def do_POST(self) -> None:
        try:
            sent = self._body()
        except RollyardError as error:
            self.close_connection = True  # what is left of it is no request
            self._send(self._routes.refusal(self._path(), error))
            return
        with self._hangups.stopping(self.connection) as gone:
            caller = _Caller(self, gone, self._keep_alive)
            reply = self._routes.post(self._path(), key_of(self._fields), sent, caller)
        if caller.begun:
            self.wfile.write(self._chunk(reply.body) + self._end_of_chunks())
        else:
            self._send(reply)

    def begin_stream(self, data: bytes) -> None:
        self.close_connection |= not self._takes_chunks()  # else it would not hear of the end
        encoding = "Transfer-Encoding: chunked\r\n" if self._takes_chunks() else ""
        head = self._head(HTTPStatus.OK, EVENT_STREAM, f"Cache-Control: no-cache\r\n{encoding}")
        self.wfile.write(head + self._chunk(data))

    def stream(self, data: bytes) -> None:
        self.wfile.write(self._chunk(data))

    def parse_request(self) -> bool:
        """Whether there is a request to answer; not one of HTTP 0.9, whose answers have no head."""
        self.command, self.requestline = "", ""
        self.request_version, self.close_connection = self.protocol_version, True
        words = self.raw_requestline.decode("latin-1").split()
        if not words:
            return False
        version = _VERSION.fullmatch(words[-1])
        if len(words) != 3 or version is None:
            self.send_error(HTTPStatus.BAD_REQUEST, "it does not name its protocol")
            return False
        if version[1] != "1":
            self.send_error(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "it is not of HTTP/1.1")
            return False
        self.command, self.path, self.request_version = words
        if not self._read_fields():
            return False
        wishes = self._fields.get("connection", "").lower()
        takes_chunks = self._takes_chunks()
        self.close_connection = "close" in wishes if takes_chunks else wishes != "keep-alive"
        if takes_chunks and self._fields.get("expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request that could be read."""
        self.close_connection = True
        self.request_version = self.protocol_version
        error = InvalidMessage(f"not a request that is answered here: {message or explain}")
        error.status = _STATUSES.get(code, code)
        self._send(self._routes.refusal("", error))

    def log_message(self, *said: object) -> None:
        """Log nothing: sandboxes could fill the log."""

    def _takes_chunks(self) -> bool:
        """Whether the client knows chunks: those of HTTP 1.0, which some proxies are, do not."""
        return self.request_version != "HTTP/1.0"

    def _path(self) -> str:
        try:
            return urlsplit(self.path).path
        except ValueError:  # no URL: nothing is there
            return self.path

    def _read_fields(self) -> bool:
        """Read what the head says of the request; whether that could be read."""
        try:
            self._fields = read_fields(iter(self._line, b""))
        except HeadTooLarge as error:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(error))
            return False
        except BadHead as error:
            self.send_error(HTTPStatus.BAD_REQUEST, str(error))
            return False
        return True

    def _line(self) -> bytes:
        return self.rfile.readline(MAX_LINE_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")

    def _body(self) -> bytes:
        told = self._fields.get("content-length", "")
        if "transfer-encoding" in self._fields or not _LENGTH.fullmatch(told):
            raise InvalidMessage(
                "the request does not tell its length", fix="send one Content-Length"
            )
        length = int(told)
        if length > MAX_BODY_BYTES:
            self._discard(length)
            raise TooLarge(
                f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB",
                fix="go on with a shorter conversation",
            )
        sent = self.rfile.read(length)
        if len(sent) < length:
            raise InvalidMessage("the request broke off")
        return sent

    def _discard(self, length: int) -> None:
        """Read a body over, for closing the connection before would cost its client the answer."""
        left = min(length, _MAX_DISCARDED_BYTES)
        while left > 0 and (piece := self.rfile.read(min(left, _PIECE_BYTES))):
            left -= len(piece)

    def _send(self, reply: Reply) -> None:
        more = f"Content-Length: {len(reply.body)}\r\n"
        if not reply.may_retry:
            more += "x-should-retry: false\r\n"
        if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
            more += "Allow: GET, POST\r\n"
        head = self._head(reply.status, reply.media_type, more)
        self.wfile.write(head if self.command == "HEAD" else head + reply.body)

    def _head(self, status: int, media_type: str, more: str) -> bytes:
        close = "Connection: close\r\n" if self.close_connection else ""
        return (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: Rollyard\r\n"
            f"Date: {_date(int(time.time()))}\r\nContent-Type: {media_type}\r\n{more}{close}\r\n"
        ).encode("latin-1")

    def _chunk(self, data: bytes) -> bytes:
        if not data or not self._takes_chunks():
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _end_of_chunks(self) -> bytes:
        return b"0\r\n\r\n" if self._takes_chunks() else b""


@lru_cache(1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


class _Caller:
    """A `WaitingClient`: the client of one request."""

    def __init__(
        self, connection: ClientConnection, gone: StopSignal, keep_alive: Reminder
    ) -> None:
        self.gone = gone
        self.begun = False
        """True if it was sent the beginning of a stream."""
        self._connection = connection
        self._keep_alive = keep_alive

    @property
    def takes_more(self) -> bool:
        poller = select.poll()
        poller.register(self._connection.connection, select.POLLOUT)
        return bool(poller.poll(0))

    def send(self, events: bytes) -> None:
        if not self.begun:
            self.begun = True
            self._connection.begin_stream(events)
        elif events:
            self._connection.stream(events)

    def reminded(self, remind: Callable[[], None]) -> AbstractContextManager[None]:
        return self._keep_alive.giving(remind)
