"""The way out of a sandbox that asked for some hosts: an HTTP proxy that connects to these.

It takes `CONNECT host:port` alone, so that it reads nothing of what it passes on, and refuses every
host that is not listed, and listed names that lead to addresses of private networks.
"""

import ipaddress
import re
import socket
from collections.abc import Collection

import structlog

from agent_server.sandbox.relay import Relay

PROXY_PORT = 3128

_MAX_REQUEST_BYTES = 8192
_ASK_SECONDS = 10.0
_IDLE_SECONDS = 60.0
_CHUNK_BYTES = 1 << 16
_PORT = re.compile("[0-9]{1,5}")

log = structlog.get_logger()


class Refused(ConnectionError):
    """The proxy's refusal of a request, with its HTTP status."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Proxy(Relay):
    def __init__(self, listener: socket.socket, hosts: Collection[str]) -> None:
        """Serve on `listener`, which belongs to the proxy from now on."""
        self._hosts = frozenset(host.lower() for host in hosts)
        super().__init__(listener, self._lead_on, idle_seconds=_IDLE_SECONDS)

    def _lead_on(self, client: socket.socket) -> socket.socket:
        """A connection to the host that the client asks for. Raises `OSError`."""
        client.settimeout(_ASK_SECONDS)
        try:
            server = self._connect(_requested(client))
        except Refused as refusal:
            client.sendall(f"HTTP/1.1 {refusal.status}\r\nContent-Length: 0\r\n\r\n".encode())
            raise
        try:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        except OSError:
            server.close()
            raise
        return server

    def _connect(self, target: tuple[str, int]) -> socket.socket:
        """A connection to a listed host. Raises `Refused`."""
        host, port = target
        if host.lower() not in self._hosts:
            log.info("host_refused", host=host)
            raise Refused("403 Not on the list of this sandbox")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for *_, address in found:
                if str(address[0]) != host and not ipaddress.ip_address(address[0]).is_global:
                    raise Refused("403 An address of a private network")
            return socket.create_connection((str(found[0][4][0]), port), _ASK_SECONDS)
        except Refused:
            raise
        except OSError as error:
            raise Refused("502 Not reached") from error


def _requested(client: socket.socket) -> tuple[str, int]:
    """The host and port of the client's request. Raises `Refused`."""
    request = b""
    while b"\r\n\r\n" not in request:
        chunk = client.recv(_CHUNK_BYTES)
        request += chunk
        if not chunk or len(request) > _MAX_REQUEST_BYTES:
            raise Refused("400 Bad request")
    method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    host, _, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise Refused("405 Only CONNECT is served here")
    return host.strip("[]"), int(port)
