"""The way into the proxy for callers with TLS: from the accepted connection to the end of the
handshake.

- A caller has a session once its handshake begins, and is given up if that does not end in time.
- Whoever speaks HTTP without TLS is told how to call.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import structlog

from serving.connection import CLOSING_SECONDS, HEAD_SECONDS
from serving.refusals import PLAIN
from serving.tls import ServerTLS, begins_handshake

_ACCEPTED_AT_ONCE = 64
_SHORTAGE_SECONDS = 1.0
"""Interval between attempts to accept connections while the system has no file left for them."""

log = structlog.get_logger()


class Arrival:
    """One connection without a session."""

    def __init__(self, sock: socket.socket, peer: str, left: Callable[["Arrival"], None]) -> None:
        """`left` is called once, when it is no arrival any more."""
        self.answered = False
        self.peer = peer
        self.sock = sock
        self.task: asyncio.Task[None] | None = None
        """The handshake under way."""
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HEAD_SECONDS, self.close)
        self._gone = False

    def refuse(self) -> None:
        """Say how to call, and close once the caller has had time to read it."""
        self._loop.remove_reader(self.sock)
        with contextlib.suppress(OSError):
            self.sock.send(PLAIN)
            self.sock.shutdown(socket.SHUT_WR)
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSING_SECONDS, self.close)

    def hand_over(self) -> socket.socket:
        """The connection, for its session; its place is kept until `leave`."""
        self._loop.remove_reader(self.sock)
        self._timer.cancel()
        return self.sock

    def turn_away(self) -> None:
        """Close what never had a place."""
        self._gone = True
        self.close()

    def leave(self) -> None:
        self._timer.cancel()
        if not self._gone:
            self._gone = True
            self._left(self)

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        else:
            self._loop.remove_reader(self.sock)
            self.sock.close()
        self.leave()


class TLSEntrance:
    """Owns the listener and the arrivals. `enters` says whether there is room for one, `leaves`
    that it is none any more, and `make` makes the protocol of the requests in a session."""

    def __init__(
        self,
        tls: ServerTLS,
        make: Callable[[], asyncio.Protocol],
        enters: Callable[[Arrival], bool],
        leaves: Callable[[Arrival], None],
    ) -> None:
        self._tls = tls
        self._make = make
        self._enters = enters
        self._leaves = leaves
        self._loop = asyncio.get_running_loop()
        self._arrivals: set[Arrival] = set()
        self._listener: socket.socket | None = None

    def listen(self, host: str, port: int, backlog: int) -> None:
        """Accept connections from now on. Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=backlog)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more, and give up those that have no session yet."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for arrival in tuple(self._arrivals):
            arrival.close()

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot_accept", error=str(error), fix="raise the limit of open files")
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_SHORTAGE_SECONDS, self._accept_again)
                return
            sock.setblocking(False)
            arrival = Arrival(sock, str(address[0]), self._left)
            if self._enters(arrival):
                self._arrivals.add(arrival)
                self._loop.add_reader(sock, self._heard, arrival)
            else:
                arrival.turn_away()

    def _accept_again(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener, self._accept)

    def _left(self, arrival: Arrival) -> None:
        self._arrivals.discard(arrival)
        self._leaves(arrival)

    def _heard(self, arrival: Arrival) -> None:
        try:
            shakes_hands = begins_handshake(arrival.sock)
        except BlockingIOError:
            return
        except OSError:
            arrival.close()
            return
        if shakes_hands:
            arrival.task = self._loop.create_task(self._begin_session(arrival))
        else:
            arrival.refuse()

    async def _begin_session(self, arrival: Arrival) -> None:
        sock = arrival.hand_over()
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                sock,
                ssl=self._tls.context(),
                ssl_handshake_timeout=HEAD_SECONDS,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except OSError as error:
            self._tls.tell_failure(arrival.peer, error)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
        finally:
            arrival.leave()
