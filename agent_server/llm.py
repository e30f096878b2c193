"""The LLM servers as an agent sees them: one `TurnRequest` in, one `Generation` out.

- A Turn is sent again only as a whole, under a new request id, and only when no whole answer came.
- A stop is obeyed at once: the agent's thread waits for the answer and for the stop together, and
  aborts the request. A server that does not even answer that cannot hold the thread.
"""

import contextlib
import itertools
import ssl
import time
from collections.abc import Iterator
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
    """From a Turn's first failure on."""
    weights: Backoff = Backoff(first_seconds=0.2, max_seconds=2.0, total_seconds=600.0)
    """For the published weights on a server that started again: they may be large."""
    connect_seconds: float = 5.0
    answer_seconds: float = 3600.0
    """No Turn may take longer, whatever the Job's limits allow."""
    abort_seconds: float = 5.0
    """How long an aborted request may take to answer with what it has, and how long an answer that
    has begun may pause."""


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
        waits: dict[type[Unanswered], Iterator[float]] = {}
        while True:
            stop.check()
            server = self._routes.server_of(request.trajectory, request.group)
            try:
                return self._try(server, request, stop)
            except Unanswered as error:
                self._routes.move(request.trajectory, request.group, failed=server)
                if stop.reason is StopReason.PARKED:  # it is asked again later, for as long as then
                    raise Stopped(StopReason.PARKED) from error
                patience = self._patience(type(error))
                if type(error) not in waits:
                    waits[type(error)] = patience.delays()
                delay = next(waits[type(error)], None)
                if delay is None:
                    kind = Unlabelled if isinstance(error, Unlabelled) else LLMUnavailable
                    raise kind(
                        f"no answer from the LLM servers for {patience.total_seconds:g} s; "
                        f"at last: {error}",
                        fix="their logs say why",
                    ) from error
            stop.wait(delay)

    def _patience(self, failure: type[Unanswered]) -> Backoff:
        return self._settings.weights if failure is Unlabelled else self._settings.retry

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and response together that every server takes."""
        return self._readiness.context_tokens

    def release(self, trajectory: str) -> None:
        """The trajectory has ended: it is no load any more."""
        self._routes.release(trajectory)

    def why_not_ready(self) -> str:
        """What is wrong with which LLM server; empty when Jobs can depend on all."""
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
        """Make the server answer with what there is of a response that was stopped."""
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
        """Best effort: a server that cannot be told will end the request by its token limit."""
        body = {"request_ids": [REQUEST_PREFIX + request_id]}
        with (
            contextlib.suppress(Unanswered, OSError, HTTPException),
            contextlib.closing(self._send(server, ABORT, body)) as call,
        ):
            call.getresponse()

    def _send(self, server: str, path: str, body: object) -> HTTPConnection:
        """The connection of its own on which this was sent; nothing of it is kept."""
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
        """Beyond the Job's time longer than `_end` waits, which says when a server hangs."""
        left = max(0.0, request.until - time.monotonic())
        return min(self._settings.answer_seconds, left + 3 * self._settings.abort_seconds)


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    # TLS 1.3 sends tickets after the handshake: they would be taken for the beginning of an answer.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _unanswered(server: str, error: Exception) -> Unanswered:
    return Unanswered(f"no answer from the LLM server at {server}: {type(error).__name__}")
