"""The watch over a node's LLM servers.

- It looks at each server every `LOOK_SECONDS`, in a thread of its own, so that a silent one delays
  no look at another.
- It keeps what is known of each, and wakes up those who wait for one that takes requests.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from llm_servers.proxy.judgement import (
    LLMPatience,
    LLMStanding,
    LookAtLLM,
    SeenOfLLM,
    gives_up,
    judge,
    rotation,
)
from llm_servers.server import LLMServer, LLMSilent
from rollyard.errors import InvalidMessage, LLMUnavailable

LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 2.0
_COUNT_SECONDS = 5.0
"""Interval between two counts of the tokens of a server, which are expensive."""

log = structlog.get_logger()


class LLMWatch:
    """Safe to share between threads. Call `start` first."""

    def __init__(
        self,
        servers: Sequence[str],
        patience: LLMPatience,
        running: Callable[[str], int],
        leave: Callable[[str], None],
    ) -> None:
        """`running` is the number of requests under way on a server; `leave` is told of one that
        has gone."""
        self._patience = patience
        self._running = running
        self._leave = leave
        self._changed = threading.Condition()
        self._seen = {server: SeenOfLLM() for server in servers}
        self._due = {server: threading.Event() for server in servers}
        self._closed = False

    def start(self) -> None:
        for server in self._seen:
            name = f"watch {server}"
            threading.Thread(target=self._live, args=(server,), name=name, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        for due in self._due.values():
            due.set()

    def hurry(self, server: str) -> None:
        """Look at the server now: something went wrong there."""
        self._due[server].set()

    def servers(self) -> dict[str, SeenOfLLM]:
        with self._changed:
            return dict(self._seen)

    def gives_up(self, server: str) -> bool:
        """Whether what is under way on the server is lost there."""
        with self._changed:
            return gives_up(server, self._seen, time.monotonic())

    def rotation(
        self, failed: Mapping[str, float] | None = None, seconds: float = 0.0
    ) -> tuple[str, ...]:
        """The servers that take requests, for which it waits for so many `seconds`. One that
        `failed`, at a time in monotonic seconds, is none of them unless it has answered since."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._open(failed or {}), seconds)
            return self._open(failed or {})

    def _open(self, failed: Mapping[str, float]) -> tuple[str, ...]:
        trusted = {
            server: seen
            for server, seen in self._seen.items()
            if server not in failed or seen.answered_at > failed[server]
        }
        return rotation(trusted, time.monotonic())

    def _live(self, server: str) -> None:
        asked = LLMServer(server)
        counted_at = 0.0
        while not self._closed:
            running, now = self._running(server), time.monotonic()
            counts = running > 0 and now - counted_at > _COUNT_SECONDS
            counted_at = now if counts else counted_at
            self._note(server, _look(asked, self._seen[server], running, counts=counts))
            self._due[server].wait(LOOK_SECONDS)
            self._due[server].clear()
        asked.close()

    def _note(self, server: str, look: LookAtLLM) -> None:
        with self._changed:
            before = self._seen[server]
            after = self._seen[server] = judge(before, look, self._patience)
            self._changed.notify_all()
        if after.standing is not before.standing:
            log.info("llm_server_seen", server=server, standing=after.standing)
            if after.standing is LLMStanding.GONE:
                self._leave(server)


def _look(server: LLMServer, before: SeenOfLLM, running: int, *, counts: bool) -> LookAtLLM:
    """Look at the server, and at how far it has come if that `counts` now."""
    paused, version, brought = False, None, before.brought
    try:
        try:
            paused = server.paused(_ANSWER_SECONDS)
            version = server.version(_ANSWER_SECONDS)
        except InvalidMessage:  # it has no control routes, but answers
            pass
        if counts:
            brought = server.tokens_done(_ANSWER_SECONDS)
    except LLMSilent:
        return LookAtLLM(at=time.monotonic(), answers=False, running=running)
    except LLMUnavailable:
        return LookAtLLM(at=time.monotonic(), listens=False, running=running)
    return LookAtLLM(
        at=time.monotonic(), paused=paused, version=version, brought=brought, running=running
    )
