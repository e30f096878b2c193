"""A way out of a sandbox: what is said to one listening socket is passed on to a server.

- The socket listens in the network of the sandbox, which has no other way out; it answers there and
  connects here.
- Which server a connection is led to is decided here. Nothing of what is passed on is read.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator

_MAX_CONNECTIONS = 32
_CHUNK_BYTES = 1 << 16

Lead = Callable[[socket.socket], socket.socket]
"""Connects to the server for a client. Raises `OSError` for a client that is led nowhere."""


class Relay:
    """Owns the listening socket, its thread, and one thread for each connection."""

    def __init__(
        self, listener: socket.socket, lead: Lead, *, idle_seconds: float | None = None
    ) -> None:
        """Serve on `listener`, which belongs to the relay from now on. A connection on which
        neither side says anything for `idle_seconds` ends, with None never."""
        self._listener = listener
        self._lead = lead
        self._idle_seconds = idle_seconds
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

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
            with client, self._held(client), self._lead(client) as server, self._held(server):
                self._pass_on(client, server)
        except OSError:
            pass  # it is led nowhere, or either side has gone
        finally:
            self._free.release()

    @contextlib.contextmanager
    def _held(self, connection: socket.socket) -> Iterator[None]:
        """Let `close` end the connection meanwhile."""
        with self._lock:
            if self._closed:
                raise OSError("the relay is closed")
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what either side says, until both have said all or neither says anything more."""
        others = {client: server, server: client}
        for each in others:
            each.settimeout(self._idle_seconds)
        with selectors.DefaultSelector() as selector:
            for each in others:
                selector.register(each, selectors.EVENT_READ)
            while selector.get_map() and (ready := selector.select(self._idle_seconds)):
                for key, _ in ready:
                    source = client if key.fileobj is client else server
                    if chunk := source.recv(_CHUNK_BYTES):
                        others[source].sendall(chunk)
                    else:
                        selector.unregister(source)
                        with contextlib.suppress(OSError):
                            others[source].shutdown(socket.SHUT_WR)
