"""The way to the LLM servers of the node: requests under way, and the connections between them.

- A connection whose answer was read to its end is kept for the next request, for `IDLE_SECONDS`.
- What is under way on a server that is given up ends with `GivenUp`.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llm_servers.answer_heads import NothingCame
from llm_servers.kept_connections import IDLE_SECONDS, MAX_IDLE
from llm_servers.llm_connection import AddressOfLLM
from llm_servers.proxy.asked import AskedOfLLM
from llm_servers.proxy.channel import LLMChannel

_CONNECT_SECONDS = 5.0


class GivenUp(OSError):
    """The server has gone, or hangs."""


class Upstream:
    """Used by the event loop alone."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, dict[LLMChannel, asyncio.TimerHandle]] = defaultdict(dict)
        """Each with the end of its time; the one that was used last is the last."""
        self._busy: defaultdict[str, set[LLMChannel]] = defaultdict(set)

    @asynccontextmanager
    async def asking(self, server: str, asked: AskedOfLLM) -> AsyncIterator[LLMChannel]:
        """Send the request, and give the channel once its answer begins. Raises `OSError` where
        there is none, and `ValueError` for a server without an address."""
        channel = await self._ask(server, asked)
        try:
            yield channel
        finally:
            self._end(server, channel)

    def give_up(self, server: str) -> None:
        """End what is under way there."""
        for channel in tuple(self._busy[server]):
            channel.fail(GivenUp("it has gone, or hangs"))

    def close(self) -> None:
        for server in (*self._idle, *self._busy):
            self.give_up(server)
            while (channel := self._kept(server)) is not None:
                channel.close()

    async def _ask(self, server: str, asked: AskedOfLLM) -> LLMChannel:
        address = AddressOfLLM.of(server)
        kept = self._kept(server)
        if kept is not None:
            with contextlib.suppress(NothingCame):  # it had been closed meanwhile
                return await self._begin(server, kept, address, asked)
        fresh = await LLMChannel.connect(address, _CONNECT_SECONDS)
        return await self._begin(server, fresh, address, asked)

    async def _begin(
        self, server: str, channel: LLMChannel, address: AddressOfLLM, asked: AskedOfLLM
    ) -> LLMChannel:
        self._busy[server].add(channel)
        try:
            channel.send(address, asked.path, asked.body)
            await channel.answer()
        except BaseException:
            self._end(server, channel)
            raise
        return channel

    def _end(self, server: str, channel: LLMChannel) -> None:
        self._busy[server].discard(channel)
        idle = self._idle[server]
        if not channel.is_free or len(idle) >= MAX_IDLE:
            channel.close()
            return
        old = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._grow_old, server, channel)
        idle[channel] = old

    def _grow_old(self, server: str, channel: LLMChannel) -> None:
        self._idle[server].pop(channel)
        channel.close()

    def _kept(self, server: str) -> LLMChannel | None:
        idle = self._idle[server]
        while idle:
            channel, old = idle.popitem()
            old.cancel()
            if channel.is_free:
                return channel
            channel.close()
        return None
