"""A connection to an LLM server on the proxy's event loop: one request and its answer after the
other.

- An answer ends where its head says, and is taken for whole only there.
- What comes is not read on while nobody takes it.
"""

import asyncio
from collections.abc import AsyncIterator

from llm_servers.answer_heads import (
    AnswerHead,
    BadAnswer,
    HungUp,
    NothingCame,
    chunk_size,
    read_answer_head,
)
from llm_servers.http_heads import MAX_FIELDS, MAX_LINE_BYTES
from llm_servers.llm_connection import AddressOfLLM, request_head, tls_context, understood

_MAX_HEAD_BYTES = 2 * MAX_LINE_BYTES
_MAX_AHEAD_BYTES = 2**20
"""What is received of an answer before somebody takes it."""


class LLMChannel(asyncio.Protocol):
    """One connection, on which at most one request is under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._over: Exception | None = None
        """Why nothing more will come."""
        self._holds = False
        """True while it does not read on."""
        self.head: AnswerHead | None = None
        """Of the answer under way, or of the last one."""
        self.ended = False
        """True once all of the answer was read."""

    @classmethod
    async def connect(cls, address: AddressOfLLM, seconds: float) -> "LLMChannel":
        """A new connection. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        with understood(address):
            tls = tls_context(address) if address.tls else None
            async with asyncio.timeout(seconds):  # its TimeoutError is an OSError
                _, channel = await loop.create_connection(cls, address.host, address.port, ssl=tls)
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MAX_AHEAD_BYTES:
            self._holds = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._over = self._over or HungUp("the server has hung up")
        self._wake()

    def fail(self, error: Exception) -> None:
        """End what is under way with this error."""
        self._over = error
        self.close()
        self._wake()

    def close(self) -> None:
        self._transport.abort()

    @property
    def is_free(self) -> bool:
        """Whether it takes another request: the last answer has ended, nothing came behind it, and
        the server has not hung up."""
        followed = self.head is not None and self.head.is_followed
        return followed and self.ended and not self._received and self._over is None

    def send(self, address: AddressOfLLM, path: str, body: bytes) -> None:
        self.head, self.ended = None, False
        # One write, for a server that reads the head alone would wake up twice.
        self._transport.write(request_head(address, "POST", path, len(body)) + body)

    async def answer(self) -> AnswerHead:
        """The head of the answer. Raises `NothingCame` and other errors of the kind `OSError`."""
        if not self._received:
            try:
                await self._more()
            except HungUp as error:
                raise NothingCame(str(error)) from error
        head = await self._head()
        while head.status < 200:  # an answer to come is not it
            head = await self._head()
        self.head = head
        return head

    async def content(self) -> bytes:
        """All of the answer. Raises `OSError`."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its content as it comes. Raises `OSError`."""
        assert self.head is not None
        if self.head.chunked:
            async for piece in self._chunks():
                yield piece
        elif self.head.length is None:
            while self._over is None or self._received:
                yield self._take(len(self._received)) if self._received else b""
                await self._more_or_end()
        else:
            async for piece in self._exactly(self.head.length):
                yield piece
        self.ended = True

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := chunk_size(await self._line()):
            if len(self._received) > size:  # the usual: an event came at once
                yield self._take(size)
            else:
                async for piece in self._exactly(size):
                    yield piece
            if await self._line():
                raise BadAnswer("a chunk is longer than it says")
        for _ in range(MAX_FIELDS):
            if not await self._line():
                return
        raise BadAnswer("too much behind the last chunk")

    async def _exactly(self, length: int) -> AsyncIterator[bytes]:
        while length > 0:
            if not self._received:
                await self._more()
            piece = self._take(length)
            length -= len(piece)
            yield piece

    async def _head(self) -> AnswerHead:
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise BadAnswer("a head without an end")
            await self._more()
        first, *fields = self._take(end + 4)[:-4].split(b"\r\n")
        return read_answer_head(first, fields)

    async def _line(self) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > MAX_LINE_BYTES:
                raise BadAnswer("a line without an end")
            await self._more()
        return self._take(end + 1)[:-1].removesuffix(b"\r")

    def _take(self, most: int) -> bytes:
        piece = bytes(memoryview(self._received)[:most])
        del self._received[:most]
        return piece

    async def _more(self) -> None:
        """Return once more has come. Raises `OSError` if nothing will."""
        if self._over is not None:
            raise self._over
        if self._holds:
            self._holds = False
            self._transport.resume_reading()
        before = len(self._received)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if len(self._received) == before and self._over is not None:
            raise self._over

    async def _more_or_end(self) -> None:
        try:
            await self._more()
        except HungUp:
            return

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
