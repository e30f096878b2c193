"""One connection of a client: HTTP, as `http.server` speaks it.

- It waits for its client for `IDLE_SECONDS` and no longer.
- A client that hangs up ends its request.
- A stream is told in chunks, as its events come; to a client of HTTP 1.0 until the connection ends.
"""

import re
import select
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from agent_server.control.stop import StopSignal
from agent_server.gateway.hangups import Hangups
from agent_server.gateway.keep_alive import Reminder
from agent_server.gateway.routes import EVENT_STREAM, MAX_BODY_BYTES, GatewayRoutes, Reply, key_of
from rollyard.errors import InvalidMessage, RollyardError, TooLarge

IDLE_SECONDS = 75.0
"""Time between two pieces of a request, or between two requests of a connection."""
_MAX_DISCARDED_BYTES = 128 * 2**20
_PIECE_BYTES = 2**18
_LENGTH = re.compile("[0-9]{1,18}")
"""A Content-Length; one of more digits is no number to Python."""
_STATUSES: dict[int, int] = {
    HTTPStatus.NOT_IMPLEMENTED: HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: HTTPStatus.BAD_REQUEST,
}
"""Statuses of errors that are the client's, and not the server's as `http.server` has it."""


class ClientConnection(BaseHTTPRequestHandler):
    """One connection, which is served from its first request to its last."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Rollyard", ""
    timeout = IDLE_SECONDS
    wbufsize = -1  # one packet for a short answer, head and all
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
        super().__init__(connection, None, None)  # type: ignore[arg-type]  # it reads neither

    def do_GET(self) -> None:
        if "Transfer-Encoding" in self.headers or self._told_lengths() not in ([], ["0"]):
            self.close_connection = True  # its body is not read, and is no request
        self._send(self._routes.get(self._path(), self._key()))

    def do_POST(self) -> None:
        try:
            sent = self._body()
        except RollyardError as error:
            self.close_connection = True  # what is left of it is no request
            self._send(self._routes.refusal(self._path(), error))
            return
        with self._hangups.stopping(self.connection) as gone:
            caller = _Caller(self, gone, self._keep_alive)
            reply = self._routes.post(self._path(), self._key(), sent, caller)
        if caller.begun:
            self.stream(reply.body)
            self.stream(b"")  # the chunk that ends a stream
        else:
            self._send(reply)

    def begin_stream(self) -> None:
        self.close_connection |= not self._takes_chunks()  # else it would not hear of the end
        self._head(HTTPStatus.OK, EVENT_STREAM)
        self.send_header("Cache-Control", "no-cache")
        if self._takes_chunks():
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def stream(self, data: bytes) -> None:
        """Send a chunk; one without data is the last."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._takes_chunks() else data)
        self.wfile.flush()

    def parse_request(self) -> bool:
        """Whether there is a request to answer; not one of HTTP 0.9, whose answers have no head."""
        understood = super().parse_request()
        if understood and self.request_version == self.default_request_version:
            self.send_error(HTTPStatus.BAD_REQUEST, "it does not name its protocol")
            return False
        return understood

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request that could be read."""
        self.close_connection = True
        self.request_version = self.protocol_version  # else the answer has no head
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

    def _key(self) -> str:
        return key_of({name.lower(): value for name, value in self.headers.items()})

    def _body(self) -> bytes:
        told = self._told_lengths()
        if "Transfer-Encoding" in self.headers or len(told) != 1 or not _LENGTH.fullmatch(told[0]):
            raise InvalidMessage(
                "the request does not tell its length", fix="send one Content-Length"
            )
        length = int(told[0])
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

    def _told_lengths(self) -> list[str]:
        return self.headers.get_all("Content-Length", [])

    def _discard(self, length: int) -> None:
        """Read a body over, for closing the connection before would cost its client the answer."""
        left = min(length, _MAX_DISCARDED_BYTES)
        while left > 0 and (piece := self.rfile.read(min(left, _PIECE_BYTES))):
            left -= len(piece)

    def _send(self, reply: Reply) -> None:
        self._head(reply.status, reply.media_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if not reply.may_retry:
            self.send_header("x-should-retry", "false")
        if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, POST")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        self.wfile.flush()

    def _head(self, status: int, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        if self.close_connection:
            self.send_header("Connection", "close")


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
            self._connection.begin_stream()
        if events:
            self._connection.stream(events)

    def reminded(self, remind: Callable[[], None]) -> AbstractContextManager[None]:
        return self._keep_alive.giving(remind)
