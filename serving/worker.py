"""gunicorn's gthread worker, with a poller that reads requests and threads that answer them.

- No thread waits for a caller: it gets a complete request, and a caller that reads its answer too
  slowly is disconnected.
- No thread waits for a handshake of TLS either: the main thread goes on with it when more has come.
- Each lane has threads of its own (`serving.lanes`), and memory of its own for bodies.
- Everything but `handle` runs in the worker's main thread, which waits for nothing but the poller.
"""

import errno
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog
from gunicorn.workers.gthread import ThreadWorker

from serving.bodies import MAX_BODY_BYTES
from serving.connection import Connection, Phase
from serving.crowd import Crowd
from serving.lanes import MAX_BYTES_OF_TURNS, Lane, Lanes
from serving.refusals import LATE, NO_ROOM, PLAIN, TRUNCATED, refusal
from serving.room import BodyMemory
from serving.tls import NoHandshake

ROOM_SECONDS = 60.0
"""Time that a request waits for memory for its body, before it is refused."""
SWEEP_SECONDS = 1.0
"""Interval between searches for connections whose deadline has passed."""
STOPPING_SECONDS = 2.0
"""Time for requests under way on open connections, once the worker is told to stop."""
MAX_ACCEPTED_AT_ONCE = 64
SHORTAGE_SECONDS = 1.0
"""Interval between attempts to accept connections while the system has no file left for them."""
_MEMORY = {Lane.TURNS: MAX_BYTES_OF_TURNS}
_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = structlog.get_logger()


class Worker(ThreadWorker):  # type: ignore[misc]
    """A gthread worker with other rules for accepting, reading, keeping and closing connections.
    Requests are answered by gunicorn's `handle_request`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._crowd: Crowd[Connection] = Crowd(self.worker_connections)
        # gunicorn stops accepting at this number; one more, and it never does: `Crowd` makes room.
        self.worker_connections += 1
        self._rooms = {lane: BodyMemory(_MEMORY.get(lane, MAX_BODY_BYTES)) for lane in Lane}
        self._swept = 0.0
        self._accepts_from = 0.0
        """Time before which no connection is accepted, in monotonic seconds."""
        self._short = False
        """True if the last attempt to accept a connection failed for want of a file."""

    def get_thread_pool(self) -> Lanes:
        return Lanes(self.cfg.threads)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled and time.monotonic() >= self._accepts_from)

    def accept(self, listener: socket.socket) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                accepted, client = listener.accept()
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._wait_for_files(error)
                elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                    log.warning("cannot_accept", error=str(error))
                return
            self._short = False
            server = listener.getsockname()
            newcomer = Connection(self.cfg, accepted, client, server, self.wsgi.tls(server[1]))
            surplus = self._crowd.surplus(newcomer)
            if surplus is newcomer:
                newcomer.sock.close()
                continue
            if surplus is not None:
                self._close(surplus)
            self.nr_conns += 1
            self._crowd.enter(newcomer)
            self._watch(newcomer)

    def handle(self, connection: Connection) -> bool:
        """Answer the request, in a thread of its lane. Returns whether another may follow."""
        try:
            return bool(self.handle_request(connection.request, connection))
        except TimeoutError:
            log.info("caller_too_slow", peer=connection.peer, path=connection.request.path)
        except (OSError, StopIteration):
            # The caller has disconnected, or gunicorn has logged an error that came after the head
            # of the answer was sent.
            pass
        except Exception as error:
            connection.say(refusal(error))
        return False

    def finish_request(self, connection: Connection, answered: "Future[bool]") -> None:
        self._free(connection)
        if answered.cancelled() or answered.exception() or not answered.result():
            self._end(connection)
            return
        connection.await_request(self.cfg.keepalive if self.alive else STOPPING_SECONDS)
        self._crowd.wait(connection)
        self._watch(connection)
        self._advance(connection)

    def murder_keepalived(self, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        for connection in self._crowd.waiting:
            if not self.alive and (connection.idle or connection.phase is Phase.HANDSHAKE):
                connection.deadline = min(connection.deadline, now + STOPPING_SECONDS)
            if force or connection.deadline <= now:
                self._expire(connection)

    def murder_pending(self) -> None:
        """Do nothing: `murder_keepalived` sees to all connections."""

    def _wait_for_files(self, error: OSError) -> None:
        """Stop accepting for a while; callers wait in the system's backlog meanwhile."""
        # The listener stays readable, so that polling it now would be a busy loop.
        if not self._short:
            log.warning("cannot_accept", error=str(error), fix="raise the limit of open files")
        self._short = True
        self._accepts_from = time.monotonic() + SHORTAGE_SECONDS
        self.set_accept_enabled(False)

    def _readable(self, connection: Connection, _socket: socket.socket) -> None:
        if connection.closed or not connection.watched:
            return  # since it was reported: its place was given to another, or a thread has it
        if connection.phase is Phase.HANDSHAKE:
            self._shake_hands(connection)
            return
        try:
            is_open = connection.receive()
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            is_open = False
        if is_open:
            self._advance(connection)
            self._look_for_more(connection)
        elif connection.phase is Phase.BODY:
            self._refuse(connection, TRUNCATED)
        else:
            self._close(connection)

    def _shake_hands(self, connection: Connection) -> None:
        assert connection.tls is not None
        awaited = selectors.EVENT_READ
        try:
            connection.shake_hands()
            self._look_for_more(connection)
        except NoHandshake:
            self._refuse(connection, PLAIN)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            awaited = selectors.EVENT_WRITE
        except OSError as error:
            connection.tls.tell_failure(connection.peer, error)
            self._end(connection)  # which leaves it time to read why
        if connection.watched:
            self.poller.modify(connection.sock, awaited, partial(self._readable, connection))

    def _look_for_more(self, connection: Connection) -> None:
        """Have what the poller does not see processed soon."""
        if connection.watched and connection.has_more:
            self.method_queue.defer(self._readable, connection, connection.sock)

    def _advance(self, connection: Connection) -> None:
        """Process what has been received."""
        with self._refusing(connection):
            if connection.phase is Phase.HEAD and connection.parse_head():
                self._admit_request(connection)
            elif connection.phase is Phase.BODY and connection.complete:
                self._answer(connection)

    @contextmanager
    def _refusing(self, connection: Connection) -> Iterator[None]:
        """Answer an error in the block to the request's caller; it must not end the worker."""
        try:
            yield
        except Exception as error:
            self._refuse(connection, refusal(error))

    def _admit_request(self, connection: Connection) -> None:
        request = connection.request
        authorization = dict(request.headers).get("AUTHORIZATION", "")
        port = connection.server[1]
        admission = self.wsgi.admit(port, request.method, request.path, authorization)
        connection.lane = admission.lane
        length = connection.body_bytes
        wanted = admission.max_bytes if length is None else length
        if not 0 < wanted <= admission.max_bytes:
            connection.skip_body()
            self._answer(connection)
            return
        connection.await_room(ROOM_SECONDS)
        if self._rooms[connection.lane].take(connection, wanted):
            self._take_body(connection)
        else:
            self._ignore(connection)

    def _take_body(self, connection: Connection) -> None:
        """Receive the body, for which there is room now."""
        if connection.body_bytes is None:
            connection.stream_body()
        else:
            connection.expect_body()
            self._watch(connection)
        if connection.complete:
            self._answer(connection)

    def _answer(self, connection: Connection) -> None:
        self._ignore(connection)
        self._crowd.work(connection)
        connection.hand_over()
        answered = self.tpool.submit(connection.lane, self.handle, connection)
        answered.add_done_callback(
            lambda done: self.method_queue.defer(self.finish_request, connection, done)
        )

    def _expire(self, connection: Connection) -> None:
        if connection.phase is Phase.ROOM:
            self._refuse(connection, NO_ROOM)
        elif connection.idle or connection.phase in (Phase.HANDSHAKE, Phase.CLOSING):
            self._close(connection)
        else:
            self._refuse(connection, LATE)

    def _refuse(self, connection: Connection, answer: bytes) -> None:
        self._free(connection)
        connection.say(answer)
        self._end(connection)

    def _end(self, connection: Connection) -> None:
        """Close the connection once the caller has had time to read the answer."""
        self._crowd.wait(connection)
        try:
            connection.await_end()
        except OSError:  # the caller has closed it
            self._close(connection)
        else:
            self._watch(connection)

    def _close(self, connection: Connection) -> None:
        self._free(connection)
        self._ignore(connection)
        self._crowd.leave(connection)
        self.nr_conns -= 1
        connection.sock.close()

    def _free(self, connection: Connection) -> None:
        """Pass the room of the connection's body on to the requests that wait for some."""
        room = self._rooms[connection.lane]
        room.leave(connection)
        while (other := room.next()) is not None:
            with self._refusing(other):
                self._take_body(other)

    def _watch(self, connection: Connection) -> None:
        # Not asked of the poller, which describes the socket in an error where the answer is no.
        if not connection.watched:
            ready = partial(self._readable, connection)
            self.poller.register(connection.sock, selectors.EVENT_READ, ready)
            connection.watched = True
            self._look_for_more(connection)

    def _ignore(self, connection: Connection) -> None:
        if connection.watched:
            self.poller.unregister(connection.sock)
            connection.watched = False
