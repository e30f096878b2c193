"""An agent's view of the LLM servers: one `TurnRequest` in, one `Generation` out.

- A Turn is sent again only as a whole, under a new request id, and only when no whole answer came.
- Servers come and go: a Turn ends where it began, and the next one begins on a server that is left.
- A stop is obeyed at once: the agent's thread waits for the answer and for the stop together, and
  aborts the request. A server that does not even answer the abort cannot hold the thread.
"""

import contextlib
import itertools
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec

from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.readiness import Readiness
from agent_server.routing import LLMRoutes
from llm_servers.contract import ABORT, GENERATE, JSON, REQUEST_PREFIX
from llm_servers.generation import (
    Generation,
    LLMBroken,
    TurnRequest,
    Unanswered,
    Unlabelled,
    read_generation,
)
from rollyard.backoff import Backoff
from rollyard.errors import LLMUnavailable


class LLMSettings(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...]
    retry: Backoff = Backoff(first_seconds=0.2, max_seconds=2.0, total_seconds=20.0)
    """Retries of a Turn, counted from its first failure."""
    weights: Backoff = Backoff(first_seconds=0.2, max_seconds=2.0, total_seconds=600.0)
    """Retries while a server that started again has no published weights: they may be large."""
    connect_seconds: float = 5.0
    answer_seconds: float = 3600.0
    """The longest that any Turn may take, whatever the Job's limits allow."""
    abort_seconds: float = 5.0
    """Time for an aborted request to answer with what it has, and the longest pause in an answer
    that has begun."""


class LLMClient:
    """All LLM servers of this agent server. Safe to share between threads."""

    def __init__(self, settings: LLMSettings) -> None:
        self._settings = settings
        self._routes = LLMRoutes(settings.servers)
        self._numbers = itertools.count()
        self._readiness = Readiness(settings.servers)

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        """One response; finish reason `abort` when it was stopped in the middle of it, unless it
        was cancelled.

        Raises `Stopped`, or `LLMUnavailable` when no server gives a usable answer: `Unlabelled`
        when the last one that was asked still has no published weights.
        """
        patience = {Unanswered: self._settings.retry, Unlabelled: self._settings.weights}
        delays = {failure: retries.delays() for failure, retries in patience.items()}
        while True:
            stop.check()
            server = self._routes.server_of(request.trajectory, request.group)
            try:
                if server is None:
                    raise Unanswered("there are no LLM servers")
                return self._try(server, request, stop)
            except Unanswered as error:
                if server is not None:
                    self._routes.move(request.trajectory, request.group, failed=server)
                if stop.reason is StopReason.PARKED:  # asked again later, with all its retries
                    raise Stopped(StopReason.PARKED) from error
                failure = type(error)
                delay = next(delays[failure], None)  # the first call starts the clock
                if delay is None:
                    seconds = patience[failure].total_seconds
                    raise failure(
                        f"no answer from the LLM servers for {seconds:g} s; at last: {error}",
                        fix="their logs say why",
                    ) from error
            stop.wait(delay)

    def add(self, url: str) -> None:
        """Use the LLM server at `url`, too; one that is used already is not changed."""
        self._readiness.add(url)
        self._routes.add(url)

    def clear(self) -> None:
        """Use none of the LLM servers for any further Turn; Turns under way end where they are."""
        self._routes.clear()
        self._readiness.clear()

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that every server takes."""
        return self._readiness.context_tokens

    def release(self, trajectory: str) -> None:
        """Forget a trajectory that has ended: it is no load any more."""
        self._routes.release(trajectory)

    def why_not_ready(self) -> str:
        """The reason why Jobs cannot depend on all LLM servers; empty if they can."""
        return self._readiness.why_not_ready()

    def close(self) -> None:
        self._readiness.close()

    def _try(self, server: str, request: TurnRequest, stop: StopSignal) -> Generation:
        request_id = f"{request.trajectory}-{next(self._numbers)}"
        seconds = self._answer_seconds(request)
        call = self._send(server, GENERATE, request.body(request_id))
        with contextlib.closing(call):
            if stop.wait_for(call.sock, seconds):
                generation = self._read(server, call, request)
                if generation.finish_reason == "abort":
                    raise Unanswered(f"the LLM server at {server} gave the request up")
                return generation
            if stop.reason is None:
                raise Unanswered(f"no answer from the LLM server at {server} in {seconds:g} s")
            self._end(server, call, request_id, stop.reason)
            generation = self._read(server, call, request)
        if not generation.token_ids:
            raise Stopped(stop.reason)
        return generation

    def _end(self, server: str, call: HTTPConnection, request_id: str, reason: StopReason) -> None:
        """Make the server answer with what it has of a response that was stopped."""
        if reason is StopReason.CANCELLED:
            self._abort(server, request_id)
            raise Stopped(reason)
        patience = Backoff(first_seconds=0.5, total_seconds=self._settings.abort_seconds)
        for delay in patience.delays():
            self._abort(server, request_id)  # again, for it may have come before the request
            if StopSignal().wait_for(call.sock, delay):
                return
        hangs = f"the LLM server at {server} hangs: it does not even end an aborted request"
        raise Unanswered(hangs) if reason is StopReason.PARKED else LLMUnavailable(hangs)

    def _abort(self, server: str, request_id: str) -> None:
        """Ask the server to end a request. One that cannot be asked ends it at its token limit."""
        body = {"request_ids": [REQUEST_PREFIX + request_id]}
        with (
            contextlib.suppress(Unanswered, OSError, HTTPException),
            contextlib.closing(self._send(server, ABORT, body)) as call,
        ):
            call.getresponse()

    def _send(self, server: str, path: str, body: object) -> HTTPConnection:
        """Send a request over a connection of its own, and return the connection."""
        url = urlsplit(server)
        seconds = self._settings.connect_seconds
        if url.scheme == "https":
            call: HTTPConnection = HTTPSConnection(url.netloc, timeout=seconds, context=_tls())
        else:
            call = HTTPConnection(url.netloc, timeout=seconds)
        headers = {**JSON, "Connection": "close"}
        try:
            call.request("POST", url.path + path, msgspec.json.encode(body), headers)
        except OSError as error:
            call.close()
            raise _unanswered(server, error) from error
        call.sock.settimeout(self._settings.abort_seconds)
        return call

    def _read(self, server: str, call: HTTPConnection, request: TurnRequest) -> Generation:
        try:
            answer = call.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise _unanswered(server, error) from error
        said = content[:500].decode(errors="replace")
        if answer.status >= 500:
            raise Unanswered(f"the LLM server at {server} answered {answer.status}: {said[:200]}")
        if answer.status != 200:
            raise LLMBroken(
                f"the LLM server at {server} refused a request with {answer.status}: {said}",
                fix="max_tokens must fit the model's context and the server needs "
                "--enable-scale-out",
            )
        try:
            return read_generation(content, request)
        except LLMUnavailable as error:
            raise type(error)(
                f"the LLM server at {server} gave an unusable answer: {error.message}"
            ) from error

    def _answer_seconds(self, request: TurnRequest) -> float:
        """Time to wait for an answer. It exceeds the Job's time by more than `_end` waits, which
        finds out that a server hangs."""
        left = max(0.0, request.until - time.monotonic())
        return min(self._settings.answer_seconds, left + 3 * self._settings.abort_seconds)


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # TLS 1.3 sends tickets after the handshake: they would be taken for the beginning of an answer.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _unanswered(server: str, error: Exception) -> Unanswered:
    return Unanswered(f"no answer from the LLM server at {server}: {type(error).__name__}")
