"""The only way out of a sandbox that asked for one: an HTTP proxy that connects to listed hosts.

- Its socket listens in the network of the sandbox, which has no other way out; it answers there and
  connects here.
- It takes `CONNECT host:port` alone, so that it reads nothing of what it passes on, and refuses
  every host that is not listed, and listed names that lead to addresses of private networks.
"""

import contextlib
import ipaddress
import re
import selectors
import socket
import threading
from collections.abc import Collection, Iterator

import structlog

PROXY_PORT = 3128

_MAX_REQUEST_BYTES = 8192
_MAX_CONNECTIONS = 32
_ASK_SECONDS = 10.0
_IDLE_SECONDS = 60.0
_CHUNK_BYTES = 1 << 16
_PORT = re.compile("[0-9]{1,5}")

log = structlog.get_logger()


class Refused(Exception):
    """The proxy's refusal of a request, with its HTTP status."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Proxy:
    """Owns the listening socket, its thread, and one thread for each connection."""

    def __init__(self, listener: socket.socket, hosts: Collection[str]) -> None:
        """Serve on `listener`, which belongs to the proxy from now on."""
        self._listener = listener
        self._hosts = frozenset(host.lower() for host in hosts)
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        with self._lock:
            self._closed = True
            for connection in (self._listener, *self._open):
                # A close alone would not wake the threads that wait for the socket.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                if not self._free.acquire(blocking=False):
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, self._held(client):
                client.settimeout(_ASK_SECONDS)
                try:
                    server = self._connect(_requested(client))
                except Refused as refusal:
                    client.sendall(
                        f"HTTP/1.1 {refusal.status}\r\nContent-Length: 0\r\n\r\n".encode()
                    )
                    return
                with server, self._held(server):
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    _relay(client, server)
        except OSError:
            pass  # either side has gone
        finally:
            self._free.release()

    @contextlib.contextmanager
    def _held(self, connection: socket.socket) -> Iterator[None]:
        """Let `close` end the connection meanwhile."""
        with self._lock:
            if self._closed:
                raise OSError("the proxy is closed")
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

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


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Pass on what either side says, until both have said all or neither says anything more."""
    others = {client: server, server: client}
    for each in others:
        each.settimeout(_IDLE_SECONDS)
    with selectors.DefaultSelector() as selector:
        for each in others:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map() and (ready := selector.select(_IDLE_SECONDS)):
            for key, _ in ready:
                source = client if key.fileobj is client else server
                if chunk := source.recv(_CHUNK_BYTES):
                    others[source].sendall(chunk)
                else:
                    selector.unregister(source)
                    with contextlib.suppress(OSError):
                        others[source].shutdown(socket.SHUT_WR)
