"""The watch over a node's LLM servers.

- It looks at each server every `LOOK_SECONDS`, in a thread of its own, so that a silent one delays
  no look at another.
- It keeps what is known of each, and wakes up those on the event loop who wait for one that takes
  requests.
"""

import asyncio
import contextlib
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
    """Safe to share between threads, but for what waits. Call `start` first."""

    def __init__(
        self,
        servers: Sequence[str],
        patience: LLMPatience,
        running: Callable[[str], int],
        leave: Callable[[str], None],
    ) -> None:
        """`running` is the number of requests under way on a server; `leave` is told of one that
        has gone."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked: Callable[[], None] = lambda: None
        self._patience = patience
        self._running = running
        self._leave = leave
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Event] = set()
        """Those who wait for a server, on the event loop."""
        self._seen = {server: SeenOfLLM() for server in servers}
        self._due = {server: threading.Event() for server in servers}
        self._closed = False
        self.model_name = ""
        """What requests have to name so that they get the policy; empty if nothing."""

    def start(self, looked: Callable[[], None]) -> None:
        """Begin to look. After each look, `looked` is called on the running event loop."""
        self._loop, self._looked = asyncio.get_running_loop(), looked
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
        with self._lock:
            return dict(self._seen)

    def given_up(self) -> tuple[str, ...]:
        """The servers on which what is under way is lost."""
        with self._lock:
            now = time.monotonic()
            return tuple(each for each in self._seen if gives_up(each, self._seen, now))

    def rotation(self, failed: Mapping[str, float] | None = None) -> tuple[str, ...]:
        """The servers that take requests. One that `failed`, at a time in monotonic seconds, is
        none of them unless it has answered since."""
        with self._lock:
            trusted = {
                server: seen
                for server, seen in self._seen.items()
                if not failed or server not in failed or seen.answered_at > failed[server]
            }
            return rotation(trusted, time.monotonic())

    async def rotation_within(
        self, seconds: float, failed: Mapping[str, float] | None = None
    ) -> tuple[str, ...]:
        """The same, after so many seconds or once there is one."""
        servers = self.rotation(failed)
        if servers:
            return servers
        looked = asyncio.Event()
        self._waiting.add(looked)
        try:
            async with asyncio.timeout(seconds):
                while not (servers := self.rotation(failed)):
                    looked.clear()
                    await looked.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(looked)
        return servers

    def _live(self, server: str) -> None:
        asked = LLMServer(server)
        counted_at, named = 0.0, False
        while not self._closed:
            running, now = self._running(server), time.monotonic()
            counts = running > 0 and now - counted_at > _COUNT_SECONDS
            counted_at = now if counts else counted_at
            # Another one may have its place since.
            named = named and self._seen[server].standing is not LLMStanding.GONE
            named = named or self._learn_name(asked)
            self._note(server, _look(asked, self._seen[server], running, counts=counts))
            self._due[server].wait(LOOK_SECONDS)
            self._due[server].clear()
        asked.close()

    def _learn_name(self, server: LLMServer) -> bool:
        """Ask a server that comes what the policy is called; all of a node are started alike.
        Returns whether it has answered."""
        try:
            self.model_name = server.model_name(_ANSWER_SECONDS)
        except InvalidMessage:
            return True  # it does not tell its models
        except LLMUnavailable:
            return False
        return True

    def _tell(self) -> None:
        def told() -> None:
            self._looked()
            for each in self._waiting:
                each.set()

        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(told)

    def _note(self, server: str, look: LookAtLLM) -> None:
        with self._lock:
            before = self._seen[server]
            after = self._seen[server] = judge(before, look, self._patience)
        self._tell()
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
