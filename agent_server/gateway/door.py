"""The door of the gateway: a port of loopback for each session, in a thread for each connection.

- Nothing is served here but the gateway's routes: a sandbox that is led to a port reaches no other
  route of this process.
- A session has so many connections and no more, and keeps no other session's clients out.
- Nothing listens on the port of a session that is over.
"""

import contextlib
import errno
import select
import socket
import threading

from agent_server.gateway.connection import ClientConnection
from agent_server.gateway.hangups import Hangups
from agent_server.gateway.keep_alive import Reminder
from agent_server.gateway.routes import GatewayRoutes

MAX_CONNECTIONS = 128
"""Limit on the connections of a session; those beyond it are closed."""
SHORTAGE_SECONDS = 0.5
"""Interval between attempts to let a client in while the system has no file left for it."""
_BACKLOG = 128
_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Entrance:
    """Owns the port of one session, and knows how many come through."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.listener.setblocking(False)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.room = threading.BoundedSemaphore(MAX_CONNECTIONS)


class Door:
    """Owns the entrances, and the thread that lets clients in at all of them."""

    def __init__(self, routes: GatewayRoutes) -> None:
        self._routes = routes
        self._hangups = Hangups()
        self._keep_alive = Reminder()
        self._lock = threading.Lock()
        self._entrances: dict[int, Entrance] = {}
        self._poller = select.epoll()
        self._closing, self._ours = socket.socketpair()
        self._poller.register(self._ours, select.EPOLLRDHUP)
        self._thread = threading.Thread(target=self._let_in, name="gateway", daemon=True)
        self._thread.start()

    def open(self) -> Entrance:
        entrance = Entrance()
        descriptor = entrance.listener.fileno()
        with self._lock:
            self._entrances[descriptor] = entrance
            self._poller.register(descriptor, select.EPOLLIN)
        return entrance

    def shut(self, entrance: Entrance) -> None:
        """Let nobody in any more; who is inside is answered."""
        with self._lock:
            descriptor = entrance.listener.fileno()
            if self._entrances.pop(descriptor, None) is not None:
                self._poller.unregister(descriptor)
                entrance.listener.close()

    def close(self) -> None:
        self._closing.close()
        self._thread.join()
        for entrance in tuple(self._entrances.values()):
            self.shut(entrance)
        self._ours.close()
        self._poller.close()
        self._hangups.close()
        self._keep_alive.close()

    def _let_in(self) -> None:
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor == self._ours.fileno():
                    return
                try:
                    with self._lock:
                        if (entrance := self._entrances.get(descriptor)) is not None:
                            self._accept(entrance)
                except OSError as error:  # it has hung up already, or there is no file for it
                    if error.errno in _SHORTAGES:
                        self._await_end(SHORTAGE_SECONDS)

    def _await_end(self, seconds: float) -> None:
        """Return once this door is closed, at the latest after `seconds`."""
        poller = select.poll()
        poller.register(self._ours, select.POLLRDHUP)
        poller.poll(seconds * 1000)

    def _accept(self, entrance: Entrance) -> None:
        client, _ = entrance.listener.accept()
        if not entrance.room.acquire(blocking=False):
            client.close()
            return
        thread = threading.Thread(target=self._serve, args=(entrance, client), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread for it
            entrance.room.release()
            client.close()

    def _serve(self, entrance: Entrance, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):  # it has hung up, or was too slow
                ClientConnection(self._routes, self._hangups, self._keep_alive, client)
                client.shutdown(socket.SHUT_WR)
        finally:
            entrance.room.release()
