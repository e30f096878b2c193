"""One request to an LLM server and its answer, over a connection that nothing else uses meanwhile.

- A stop is obeyed at once: the agent's thread waits for the answer and for the stop together, and
  aborts the request. A server that does not even answer the abort cannot hold the thread.
- A server that cannot abort is hung up on, and what it had of the response is lost.
- Where somebody waits for the tokens, a server that can sends them as they come.
- A connection whose answer was read to its end is kept for the next request. If it turns out that
  the server has closed it meanwhile, the request goes out once more over a new one: nothing of an
  answer had come, and a Turn that was sampled twice is used once.
"""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.under_way import UnderWay
from llm_servers.answer_heads import NothingCame
from llm_servers.contract import policy_among
from llm_servers.dialects.protocol import LLMCall, LLMDialect, LLMStream
from llm_servers.generation import LLMBroken, TurnRequest, Unanswered
from llm_servers.kept_connections import KeptConnections
from llm_servers.llm_connection import AddressOfLLM, LLMAnswer, LLMConnection, Untrusted
from llm_servers.responses import UncheckedResponse
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable

_NO_SUCH_ROUTE = (403, 404, 405, 501)
"""Answers of a server that lacks a route, or was started without it."""
_EVENTS = "text/event-stream"


class RequestRefused(LLMBroken):
    """The server refuses the request as it is."""


class UnknownDialect(RequestRefused):
    """The server does not know the route."""


class Away(Unanswered):
    """There is no connection to the server, or none any more."""


class Silent(Away):
    """The connection ended before anything of an answer came."""


class Exchange:
    """The way to LLM servers. Safe to share between threads."""

    def __init__(
        self,
        connect_seconds: float,
        abort_seconds: float,
        tokens: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`tokens` has the token that is shown to a server, by its URL: to no other one; it may
        grow."""
        self._tokens = tokens
        self._connect_seconds = connect_seconds
        self._abort_seconds = abort_seconds
        self._numbers = itertools.count()
        self._kept = KeptConnections()
        self.under_way = UnderWay()

    def ask(
        self,
        server: str,
        dialect: LLMDialect,
        request: TurnRequest,
        stop: StopSignal,
        seconds: float,
    ) -> UncheckedResponse:
        """The server's answer; with finish reason `abort` if it was stopped in the middle.

        Raises `Stopped` where nothing of a response that was stopped can be had, `Unanswered` when
        there is no whole answer within `seconds`, and `LLMBroken` for one that cannot be used.
        """
        until = time.monotonic() + seconds
        kept = self._kept.take(server)
        if kept is not None:
            try:
                return self._ask(server, kept, dialect, request, stop, until)
            except Silent:
                stop.check()
        return self._ask(server, self._connect(server), dialect, request, stop, until)

    def model_name(self, server: str) -> str:
        """What requests have to name so that they get the policy; empty if nothing. Raises
        `Unanswered`."""
        with self._connect(server) as connection:
            try:
                connection.send("GET", "/v1/models", b"", self._abort_seconds)
            except NothingCame as error:
                raise _silent(server, error) from error
            try:
                answer = _begin(server, connection)
            except RequestRefused:  # it does not tell its models
                return ""
            return policy_among(_content(server, answer))

    def close(self) -> None:
        """Keep no connection any more."""
        self._kept.close()

    def _ask(
        self,
        server: str,
        connection: LLMConnection,
        dialect: LLMDialect,
        request: TurnRequest,
        stop: StopSignal,
        until: float,
    ) -> UncheckedResponse:
        request_id = f"{request.trajectory}-{next(self._numbers)}"
        streamed = None if request.hear is None else dialect.stream(request, request_id)
        asked = dialect.generate(request, request_id) if streamed is None else streamed[0]
        with self._lent(server, connection, stop):
            self._send(server, connection, asked)
            way = _Way(server, dialect.abort(request_id), connection.sock)
            seconds = max(0.0, until - time.monotonic())
            if not stop.wait_for(connection.sock, seconds):
                if stop.reason is None:
                    raise Unanswered(f"no answer from the LLM server at {server} in {seconds:g} s")
                self._end(way, stop.reason)
            answer = _begin(server, connection)
            if streamed is not None and answer.media_type == _EVENTS:
                way.sock.settimeout(seconds)  # servers pause for as long as an update takes
                return self._listen(way, answer, streamed[1], request, stop)
            content = _content(server, answer)
        try:
            return dialect.read(content, request)
        except LLMUnavailable as error:
            raise unusable(server, error) from error

    @contextlib.contextmanager
    def _lent(self, server: str, connection: LLMConnection, stop: StopSignal) -> Iterator[None]:
        """Keep the connection behind the block if an answer to it ended there, and nobody stopped
        it: whoever ends a stopped one may hang up on it late."""
        try:
            with self.under_way.noted(server, connection):
                yield
            if connection.goes_on and stop.reason is None:
                self._kept.keep(server, connection)
                return
        except BaseException:
            connection.close()
            raise
        connection.close()

    def _listen(
        self,
        way: "_Way",
        answer: LLMAnswer,
        stream: LLMStream,
        request: TurnRequest,
        stop: StopSignal,
    ) -> UncheckedResponse:
        """Hear a response to its end, which a stop makes the server bring about."""
        assert request.hear is not None
        ended = threading.Event()

        def end() -> None:  # in a thread of its own, for whoever stops must not wait
            threading.Thread(target=self._end_stream, args=(way, stop, ended), daemon=True).start()

        try:
            with stop.interrupting(end):
                for event in _events(answer):
                    if tokens := stream.hear(event):
                        request.hear(tokens)
            return stream.read()
        except LLMUnavailable as error:
            raise unusable(way.server, error) from error
        except OSError as error:
            if stop.reason is None:
                raise _away(way.server, error) from error
            if stop.reason is StopReason.CANCELLED:
                raise Stopped(stop.reason) from error
            raise _hangs(way.server, stop.reason, "it does not end an aborted response") from error
        finally:
            ended.set()

    def _end_stream(self, way: "_Way", stop: StopSignal, ended: threading.Event) -> None:
        """Make the server end a response that is being heard, or else hang up on it."""
        if stop.reason is not StopReason.CANCELLED:
            patience = Backoff(first_seconds=0.5, total_seconds=self._abort_seconds)
            for delay in patience.delays():
                if not self._abort(way.server, way.abort):
                    break
                if ended.wait(delay):
                    return
        with contextlib.suppress(OSError):  # it has just ended
            way.sock.shutdown(socket.SHUT_RDWR)
        if stop.reason is StopReason.CANCELLED:
            self._abort(way.server, way.abort)

    def _end(self, way: "_Way", reason: StopReason) -> None:
        """Make the server answer with what it has of a response that was stopped."""
        if reason is StopReason.CANCELLED:
            self._abort(way.server, way.abort)
            raise Stopped(reason)
        patience = Backoff(first_seconds=0.5, total_seconds=self._abort_seconds)
        for delay in patience.delays():
            # Again, for it may have come before the request.
            if not self._abort(way.server, way.abort):
                return self._hang_up(way.server, reason)
            if StopSignal().wait_for(way.sock, delay):
                return None
        raise _hangs(way.server, reason, "it does not even end an aborted request")

    def _abort(self, server: str, abort: LLMCall | None) -> bool:
        """Ask the server to end a request. Returns False if it has no way to. One that cannot be
        asked ends the request at its token limit."""
        if abort is None:
            return False
        with (
            contextlib.suppress(Unanswered, OSError),
            self._connect(server) as connection,
        ):
            self._send(server, connection, abort)
            return connection.answer().status not in _NO_SUCH_ROUTE
        return True

    def _hang_up(self, server: str, reason: StopReason) -> None:
        """Give a response up that was stopped, unless its server may have failed to give one."""
        try:
            with self._connect(server) as connection:
                connection.send("GET", "/health", b"", self._abort_seconds)
                works = connection.answer().status < 500
        except (Unanswered, OSError):
            works = False
        if works:
            raise Stopped(reason)
        raise _hangs(server, reason, "it does not say whether it works")

    def _connect(self, server: str) -> LLMConnection:
        try:
            return LLMConnection(
                AddressOfLLM.of(server), self._connect_seconds, self._tokens.get(server, "")
            )
        except (OSError, ValueError) as error:
            raise _away(server, error) from error

    def _send(self, server: str, connection: LLMConnection, call: LLMCall) -> None:
        body = msgspec.json.encode(call.body)
        try:
            connection.send("POST", call.path, body, self._abort_seconds)
        except NothingCame as error:
            raise _silent(server, error) from error


class _Way(msgspec.Struct, frozen=True):
    """The way to one request under way, and to its end."""

    server: str
    abort: LLMCall | None
    sock: socket.socket


def _begin(server: str, connection: LLMConnection) -> LLMAnswer:
    """The answer to a request, of which nothing is read yet but that it is one."""
    try:
        answer = connection.answer()
    except NothingCame as error:
        raise _silent(server, error) from error
    except OSError as error:
        raise _away(server, error) from error
    if answer.status == 200:
        return answer
    said = _content(server, answer)[:500].decode(errors="replace")
    if answer.status >= 500 and answer.status not in _NO_SUCH_ROUTE:
        raise Unanswered(f"the LLM server at {server} answered {answer.status}: {said[:200]}")
    kind = UnknownDialect if answer.status in _NO_SUCH_ROUTE else RequestRefused
    raise kind(
        f"the LLM server at {server} refused a request with {answer.status}: {said}",
        fix="max_tokens must fit the model's context",
    )


def _content(server: str, answer: LLMAnswer) -> bytes:
    try:
        return answer.content()
    except OSError as error:
        raise _away(server, error) from error


def _events(answer: LLMAnswer) -> Iterator[bytes]:
    """The data of each event, up to the one that says that it is the last."""
    begun = b""
    for piece in answer.pieces():
        *lines, begun = (begun + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                yield data


def unusable(server: str, error: LLMUnavailable) -> LLMUnavailable:
    """The same error, with the server's name."""
    return type(error)(f"the LLM server at {server} gave an unusable answer: {error.message}")


def _hangs(server: str, reason: StopReason, how: str) -> LLMUnavailable:
    # A parked Job asks again when it goes on; in time that is over, nobody could.
    kind = Unanswered if reason is StopReason.PARKED else LLMUnavailable
    return kind(f"the LLM server at {server} hangs: {how}")


def _away(server: str, error: Exception) -> Away:
    reason = str(error) if isinstance(error, Untrusted) else type(error).__name__
    return Away(f"no answer from the LLM server at {server}: {reason}")


def _silent(server: str, error: NothingCame) -> Silent:
    return Silent(f"no answer from the LLM server at {server}: {error}")
