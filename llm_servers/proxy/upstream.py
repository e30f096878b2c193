"""One request to an LLM server of the node, and its answer as it comes.

- While an answer is waited for, the caller may hang up, and the server may be given up.
- A connection whose answer was read to its end is kept for the next request.
"""

import select
import socket
from collections.abc import Callable, Iterator

from llm_servers.kept_connections import KeptConnections
from llm_servers.llm_connection import AddressOfLLM, LLMAnswer, LLMConnection, NothingCame
from llm_servers.proxy.asked import AskedOfLLM

_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 30.0
_LOOK_MILLISECONDS = 500


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


class GivenUp(Exception):
    """The server has gone, or hangs."""


class Upstream:
    """The way to the LLM servers. Safe to share between threads."""

    def __init__(self, gives_up: Callable[[str], bool]) -> None:
        self._gives_up = gives_up
        self._kept = KeptConnections()

    def send(self, server: str, asked: AskedOfLLM, caller: socket.socket | None) -> "Underway":
        """Send the request, and return once its answer begins. Raises `CallerGone`, `GivenUp`, and
        `OSError` where there is none."""
        kept = self._kept.take(server)
        if kept is not None:
            try:
                return self._begin(server, kept, asked, caller)
            except NothingCame:  # it had been closed meanwhile
                if self._gives_up(server):
                    raise
        connection = LLMConnection(AddressOfLLM.of(server), _CONNECT_SECONDS)
        return self._begin(server, connection, asked, caller)

    def close(self) -> None:
        self._kept.close()

    def _begin(
        self,
        server: str,
        connection: LLMConnection,
        asked: AskedOfLLM,
        caller: socket.socket | None,
    ) -> "Underway":
        def wait() -> None:
            self._await(server, connection.sock, caller)

        connection.before_reading = wait
        try:
            connection.send("POST", asked.path, asked.body, _SEND_SECONDS)
            return Underway(server, connection, connection.answer(), self._kept)
        except BaseException:
            connection.close()
            raise

    def _await(self, server: str, sock: socket.socket, caller: socket.socket | None) -> None:
        """Return once something can be read of the answer."""
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        if caller is not None:
            poller.register(caller, select.POLLRDHUP)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(_LOOK_MILLISECONDS)}
            if sock.fileno() in ready:
                return
            if ready:
                raise CallerGone
            if self._gives_up(server):
                raise GivenUp


class Underway:
    """An answer that has begun. Close it, read to its end or not."""

    def __init__(
        self, server: str, connection: LLMConnection, answer: LLMAnswer, kept: KeptConnections
    ) -> None:
        self.answer = answer
        self._server = server
        self._connection = connection
        self._kept = kept

    def pieces(self) -> Iterator[bytes]:
        """Its content as it comes. Raises as `Upstream.send`."""
        return self.answer.pieces()

    def close(self) -> None:
        self._connection.before_reading = lambda: None
        if self.answer.ended and self._connection.goes_on:
            self._kept.keep(self._server, self._connection)
        else:
            self._connection.close()
