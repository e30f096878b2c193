"""The door of the gateway: HTTP on loopback, and on a Unix socket that sandboxes can be given.

- Nothing is served here but the gateway's routes, and it has sockets of its own: a sandbox that
  reaches them reaches no other route of this process.
- A connection has a thread. It waits for its client for `IDLE_SECONDS` and no longer.
- A client that hangs up ends its request.
"""

import re
import shutil
import tempfile
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer, TCPServer, ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import urlsplit

from agent_server.gateway.hangups import Hangups
from agent_server.gateway.routes import MAX_BODY_BYTES, GatewayRoutes, Reply, key_of
from rollyard.errors import InvalidMessage, RollyardError, TooLarge

IDLE_SECONDS = 75.0
"""Time between two pieces of a request, or between two requests of a connection."""
MAX_CONNECTIONS = 1024
"""Limit on the connections of each socket; those beyond it are closed."""
_MAX_DISCARDED_BYTES = 128 * 2**20
_PIECE_BYTES = 2**18
_LENGTH = re.compile("[0-9]{1,18}")
"""A Content-Length; one of more digits is no number to Python."""
_STATUSES: dict[int, int] = {
    HTTPStatus.NOT_IMPLEMENTED: HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: HTTPStatus.BAD_REQUEST,
}
"""Statuses of errors that are the client's, and not the server's as `http.server` has it."""


class Door:
    """Owns both sockets, and the directory of the second."""

    def __init__(self, routes: GatewayRoutes) -> None:
        self._hangups = Hangups()
        self._directory = Path(tempfile.mkdtemp(prefix="rollyard-gateway-"))
        self.socket = str(self._directory / "socket")
        """Path of the Unix socket. Its directory keeps this machine's other users out, and the
        socket itself lets in whatever user a sandbox has."""
        handler = partial(_Client, routes, self._hangups)
        loopback = _Loopback(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{loopback.server_address[1]}"
        self._servers: tuple[BaseServer, ...] = (loopback, _UnixSocket(self.socket, handler))
        Path(self.socket).chmod(0o666)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._hangups.close()
        shutil.rmtree(self._directory, ignore_errors=True)


class _Client(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Rollyard", ""
    timeout = IDLE_SECONDS
    wbufsize = -1  # one packet for a short answer, head and all

    def __init__(self, routes: GatewayRoutes, hangups: Hangups, *connection: Any) -> None:
        self._routes = routes
        self._hangups = hangups
        super().__init__(*connection)

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
            reply = self._routes.post(self._path(), self._key(), sent, gone)
        self._send(reply)

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
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.media_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if not reply.may_retry:
            self.send_header("x-should-retry", "false")
        if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        self.wfile.flush()


class _Crowded(ThreadingMixIn):
    """A server with a thread for each connection, and a limit on them."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            request.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client has hung up, or was too slow."""


class _Loopback(_Crowded, TCPServer):
    allow_reuse_address = True


class _UnixSocket(_Crowded, UnixStreamServer):
    pass
