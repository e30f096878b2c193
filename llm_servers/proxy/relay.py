"""The relay: one request of a caller, sent to one of the node's LLM servers, and its answer.

- A request whose server fails before anything of the answer was delivered is sent to another one,
  or to the same one once it answers again; `MAX_TRIES` times, for it may be what kills servers.
- Later the caller's connection is cut off in the middle of the answer, which nobody takes for a
  whole one.
- A request that nobody waits for any more is broken off.
"""

import itertools
import socket
import time
from collections.abc import Iterator

import structlog
from flask import Response

from llm_servers.dialects.prorl import PRORL_GENERATE
from llm_servers.llm_connection import HungUp
from llm_servers.proxy.asked import AskedOfLLM
from llm_servers.proxy.residences import Flight, Residences
from llm_servers.proxy.translation import as_prorl, as_tokens
from llm_servers.proxy.upstream import CallerGone, GivenUp, Underway, Upstream
from llm_servers.proxy.watch import LLMWatch
from rollyard.errors import LLMUnavailable

MAX_TRIES = 3
EVENTS = "text/event-stream"
WAIT_SECONDS = 10.0
"""Time for which a request waits for any server. Agent servers repeat one for longer."""
_NOT_IMPLEMENTED = 501

log = structlog.get_logger()


class LLMRelay:
    """Safe to share between threads."""

    def __init__(self, watch: LLMWatch, residences: Residences) -> None:
        self._watch = watch
        self._residences = residences
        self._upstream = Upstream(watch.gives_up)

    def post(self, asked: AskedOfLLM, caller: socket.socket | None) -> Response:
        """The answer of one of the servers. Raises `LLMUnavailable`."""
        if asked.path != PRORL_GENERATE:
            return self._post(asked, caller)
        answer = self._post(as_tokens(asked), caller)
        if answer.status_code == 200:
            answer.set_data(as_prorl(answer.get_data()))
        return answer

    def close(self) -> None:
        self._upstream.close()

    def _post(self, asked: AskedOfLLM, caller: socket.socket | None) -> Response:
        failed: dict[str, float] = {}
        reason = "none of them takes requests"
        for _ in range(MAX_TRIES):
            servers = self._watch.rotation(failed, WAIT_SECONDS)
            if not servers:
                break
            flight = self._residences.begin(asked, servers)
            try:
                answer = self._ask(flight, caller)
            except CallerGone:
                return Response(status=499)  # for the log: nobody reads it
            except (OSError, ValueError, GivenUp) as error:
                reason = f"{flight.server} failed: {type(error).__name__} {error}".strip()
            else:
                if not self._is_better_elsewhere(answer, failed, flight.server):
                    return answer
                reason = f"{flight.server} answered {answer.status_code}"
            log.warning("request_goes_elsewhere", server=flight.server, reason=reason)
            failed[flight.server] = time.monotonic()
            self._watch.hurry(flight.server)
        raise LLMUnavailable(
            f"no LLM server of this node has answered: {reason}",
            fix="the servers' logs say how they are",
        )

    def _is_better_elsewhere(self, answer: Response, failed: dict[str, float], server: str) -> bool:
        if answer.status_code < 500 or answer.status_code == _NOT_IMPLEMENTED:
            return False
        return bool(self._watch.rotation({**failed, server: time.monotonic()}))

    def _ask(self, flight: Flight, caller: socket.socket | None) -> Response:
        """The answer, whole unless it comes in events."""
        try:
            underway = self._upstream.send(flight.server, flight.asked, caller)
        except BaseException:
            self._residences.end(flight)
            raise
        leg = _Leg(underway, flight, self._residences)
        try:
            answer, pieces = underway.answer, underway.pieces()
            if answer.media_type == EVENTS:
                # Its first event: until then another server may answer.
                return Response(leg.stream(next(pieces, b"")), answer.status, mimetype=EVENTS)
            whole = Response(b"".join(pieces), answer.status, mimetype=answer.media_type)
        except BaseException:
            leg.close()
            raise
        leg.close()
        return whole


class _Leg:
    """One try of a request, which ends once."""

    def __init__(self, underway: Underway, flight: Flight, residences: Residences) -> None:
        self._underway = underway
        self._flight = flight
        self._residences = residences

    def stream(self, first: bytes) -> "_Events":
        self._residences.computed(self._flight)
        return _Events(first, self._underway.pieces(), self)

    def close(self) -> None:
        self._underway.close()
        self._residences.end(self._flight)


class _Events:
    """A response as it comes. Whoever serves it closes it, read to its end or not."""

    def __init__(self, first: bytes, rest: Iterator[bytes], leg: _Leg) -> None:
        self._pieces = itertools.chain((first,), rest)
        self._leg: _Leg | None = leg

    def __iter__(self) -> "_Events":
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except (GivenUp, CallerGone) as error:
            raise HungUp("the LLM server was given up in the middle of a response") from error

    def close(self) -> None:
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.close()
