"""The relay: one request of a caller, sent to one of the node's LLM servers, and its answer.

- A request whose server fails before anything of the answer was delivered is sent to another one,
  or to the same one once it answers again; `MAX_TRIES` times, for it may be what kills servers.
- Later the caller's connection is cut off in the middle of the answer, which nobody takes for a
  whole one.
- A request that nobody waits for any more is broken off.
"""

import time
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import structlog

from llm_servers.dialects.prorl import PRORL_GENERATE
from llm_servers.proxy.asked import AskedOfLLM
from llm_servers.proxy.residences import Flight, Residences
from llm_servers.proxy.translation import as_prorl, as_tokens
from llm_servers.proxy.upstream import Upstream
from llm_servers.proxy.watch import LLMWatch
from rollyard.errors import LLMUnavailable

MAX_TRIES = 3
EVENTS = "text/event-stream"
WAIT_SECONDS = 10.0
"""Time for which a request waits for any server. Agent servers repeat one for longer."""
_NOT_IMPLEMENTED = 501

log = structlog.get_logger()


class WaitingCaller(Protocol):
    """Who waits for the answer. A coroutine that is cancelled has nobody any more."""

    def send(self, status: int, fields: str, content: bytes) -> None:
        """Send a whole answer; `fields` are those of its head but for the length."""
        ...

    def begin_stream(self, status: int, fields: str) -> None: ...

    async def stream(self, piece: bytes) -> None: ...

    def end_stream(self) -> None: ...

    def close(self) -> None:
        """Cut the connection off."""
        ...


class WholeAnswer(msgspec.Struct, frozen=True):
    status: int
    media_type: str
    content: bytes


class LLMRelay:
    """Used by the event loop alone."""

    def __init__(self, watch: LLMWatch, residences: Residences) -> None:
        self._watch = watch
        self._residences = residences
        self._upstream = Upstream()

    async def post(self, asked: AskedOfLLM, caller: WaitingCaller) -> None:
        """Give the caller the answer of one of the servers. Raises `LLMUnavailable` and
        `InvalidMessage` before anything of it was given."""
        translated = asked.path == PRORL_GENERATE
        answer = await self._post(as_tokens(asked) if translated else asked, caller)
        if answer is None:
            return
        content = answer.content
        if translated and answer.status == 200:
            content = as_prorl(content)
        caller.send(answer.status, f"Content-Type: {answer.media_type}\r\n", content)

    def look_around(self) -> None:
        """End what is under way on servers that are given up, so that it goes elsewhere."""
        for server in self._watch.given_up():
            self._upstream.give_up(server)

    def close(self) -> None:
        self._upstream.close()

    async def _post(self, asked: AskedOfLLM, caller: WaitingCaller) -> WholeAnswer | None:
        """The answer; None if it came in events, which the caller has."""
        failed: dict[str, float] = {}
        reason = "none of them takes requests"
        if not asked.model and (policy := self._watch.model_name):
            asked = asked.naming(policy)
        for _ in range(MAX_TRIES):
            servers = await self._watch.rotation_within(WAIT_SECONDS, failed)
            if not servers:
                break
            flight = self._residences.begin(asked, servers)
            try:
                answer = await self._ask(flight, caller)
            except (OSError, ValueError) as error:
                reason = f"{flight.server} failed: {type(error).__name__} {error}".strip()
            else:
                if answer is None or not self._is_better_elsewhere(answer, failed, flight.server):
                    return answer
                reason = f"{flight.server} answered {answer.status}"
            log.warning("request_goes_elsewhere", server=flight.server, reason=reason)
            failed[flight.server] = time.monotonic()
            self._watch.hurry(flight.server)
        raise LLMUnavailable(
            f"no LLM server of this node has answered: {reason}",
            fix="the servers' logs say how they are",
        )

    def _is_better_elsewhere(
        self, answer: WholeAnswer, failed: dict[str, float], server: str
    ) -> bool:
        if answer.status < 500 or answer.status == _NOT_IMPLEMENTED:
            return False
        return bool(self._watch.rotation({**failed, server: time.monotonic()}))

    async def _ask(self, flight: Flight, caller: WaitingCaller) -> WholeAnswer | None:
        try:
            async with self._upstream.asking(flight.server, flight.asked) as channel:
                head = channel.head
                assert head is not None
                if head.media_type != EVENTS:
                    return WholeAnswer(head.status, head.media_type, await channel.content())
                pieces = channel.pieces()
                # Its first event: until then another server may answer.
                first = await anext(pieces, b"")
                self._residences.computed(flight)
                await self._tell(head.status, first, pieces, caller)
                return None
        finally:
            self._residences.end(flight)

    async def _tell(
        self, status: int, first: bytes, rest: AsyncIterator[bytes], caller: WaitingCaller
    ) -> None:
        """Give the caller an answer as it comes."""
        caller.begin_stream(status, f"Content-Type: {EVENTS}\r\n")
        try:
            await caller.stream(first)
            async for piece in rest:
                await caller.stream(piece)
        except OSError as error:
            log.warning("response_broken_off", reason=str(error))
            caller.close()
            return
        caller.end_stream()
