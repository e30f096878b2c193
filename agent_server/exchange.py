"""One request to an LLM server and its answer, over a connection of its own.

- A stop is obeyed at once: the agent's thread waits for the answer and for the stop together, and
  aborts the request. A server that does not even answer the abort cannot hold the thread.
- A server that cannot abort is hung up on, and what it had of the response is lost.
"""

import contextlib
import itertools
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec

from agent_server.control.stop import Stopped, StopReason, StopSignal
from llm_servers.contract import JSON
from llm_servers.dialects.protocol import LLMCall, LLMDialect
from llm_servers.generation import LLMBroken, TurnRequest, Unanswered
from llm_servers.responses import UncheckedResponse
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable

_NO_SUCH_ROUTE = (403, 404, 405, 501)
"""Answers of a server that lacks a route, or was started without it."""


class RequestRefused(LLMBroken):
    """The server refuses the request as it is."""


class UnknownDialect(RequestRefused):
    """The server does not know the route."""


class Away(Unanswered):
    """There is no connection to the server, or none any more."""


class Exchange:
    """The way to LLM servers. Safe to share between threads."""

    def __init__(self, connect_seconds: float, abort_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._abort_seconds = abort_seconds
        self._numbers = itertools.count()

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
        request_id = f"{request.trajectory}-{next(self._numbers)}"
        with contextlib.closing(self._send(server, dialect.generate(request, request_id))) as call:
            if not stop.wait_for(call.sock, seconds):
                if stop.reason is None:
                    raise Unanswered(f"no answer from the LLM server at {server} in {seconds:g} s")
                self._end(server, dialect.abort(request_id), call, stop.reason)
            content = self._read(server, call)
        try:
            return dialect.read(content, request)
        except LLMUnavailable as error:
            raise unusable(server, error) from error

    def _end(
        self, server: str, abort: LLMCall | None, call: HTTPConnection, reason: StopReason
    ) -> None:
        """Make the server answer with what it has of a response that was stopped."""
        if reason is StopReason.CANCELLED:
            self._abort(server, abort)
            raise Stopped(reason)
        patience = Backoff(first_seconds=0.5, total_seconds=self._abort_seconds)
        for delay in patience.delays():
            # Again, for it may have come before the request.
            if not self._abort(server, abort):
                return self._hang_up(server, reason)
            if StopSignal().wait_for(call.sock, delay):
                return None
        raise _hangs(server, reason, "it does not even end an aborted request")

    def _abort(self, server: str, abort: LLMCall | None) -> bool:
        """Ask the server to end a request. Returns False if it has no way to. One that cannot be
        asked ends the request at its token limit."""
        if abort is None:
            return False
        with (
            contextlib.suppress(Unanswered, OSError, HTTPException),
            contextlib.closing(self._send(server, abort)) as call,
        ):
            return call.getresponse().status not in _NO_SUCH_ROUTE
        return True

    def _hang_up(self, server: str, reason: StopReason) -> None:
        """Give a response up that was stopped, unless its server may have failed to give one."""
        try:
            with contextlib.closing(self._connect(server, "GET", "/health")) as call:
                works = call.getresponse().status < 500
        except (Unanswered, OSError, HTTPException):
            works = False
        if works:
            raise Stopped(reason)
        raise _hangs(server, reason, "it does not say whether it works")

    def _send(self, server: str, call: LLMCall) -> HTTPConnection:
        return self._connect(server, "POST", call.path, msgspec.json.encode(call.body))

    def _connect(
        self, server: str, method: str, path: str, body: bytes | None = None
    ) -> HTTPConnection:
        """Send a request over a connection of its own, and return the connection."""
        url = urlsplit(server)
        if url.scheme == "https":
            call: HTTPConnection = HTTPSConnection(
                url.netloc, timeout=self._connect_seconds, context=_tls()
            )
        else:
            call = HTTPConnection(url.netloc, timeout=self._connect_seconds)
        try:
            call.request(method, url.path + path, body, {**JSON, "Connection": "close"})
        except OSError as error:
            call.close()
            raise _away(server, error) from error
        call.sock.settimeout(self._abort_seconds)
        return call

    def _read(self, server: str, call: HTTPConnection) -> bytes:
        try:
            answer = call.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise _away(server, error) from error
        said = content[:500].decode(errors="replace")
        if answer.status >= 500 and answer.status not in _NO_SUCH_ROUTE:
            raise Unanswered(f"the LLM server at {server} answered {answer.status}: {said[:200]}")
        if answer.status != 200:
            kind = UnknownDialect if answer.status in _NO_SUCH_ROUTE else RequestRefused
            raise kind(
                f"the LLM server at {server} refused a request with {answer.status}: {said}",
                fix="max_tokens must fit the model's context",
            )
        return content


def unusable(server: str, error: LLMUnavailable) -> LLMUnavailable:
    """The same error, with the server's name."""
    return type(error)(f"the LLM server at {server} gave an unusable answer: {error.message}")


def _hangs(server: str, reason: StopReason, how: str) -> LLMUnavailable:
    # A parked Job asks again when it goes on; in time that is over, nobody could.
    kind = Unanswered if reason is StopReason.PARKED else LLMUnavailable
    return kind(f"the LLM server at {server} hangs: {how}")


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # TLS 1.3 sends tickets after the handshake: they would be taken for the beginning of an answer.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _away(server: str, error: Exception) -> Away:
    return Away(f"no answer from the LLM server at {server}: {type(error).__name__}")
