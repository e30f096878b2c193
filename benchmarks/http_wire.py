"""HTTP/1.1 with as little Python as possible, so that the benchmark measures the other side.

Bodies have a Content-Length, and connections are kept open. It is for our own services on loopback.
"""

import asyncio
from collections.abc import Awaitable, Callable

Handler = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""(path, body) -> (status, body)."""

_TYPE = b"Content-Type: application/msgpack\r\n"


class WireConnection:
    """One kept-open connection to a server, made when it is needed. One request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer. A request is repeated once if its connection is
        lost, since servers close those that were long idle."""
        try:
            return await self._post(path, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._streams = None
            return await self._post(path, body)

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=2**26)
        reader, writer = self._streams
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: loopback\r\n%bAccept: application/msgpack\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (path.encode(), _TYPE, len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head[9:12]), await reader.readexactly(_length(head))


async def serve(host: str, port: int, handle: Handler) -> asyncio.Server:
    """Answer every request with what `handle` returns for it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                status, body = await handle(path, await reader.readexactly(_length(head)))
                writer.write(
                    b"HTTP/1.1 %d OK\r\n%bContent-Length: %d\r\n\r\n%b"
                    % (status, _TYPE, len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return await asyncio.start_server(talk, host, port, backlog=4096)


def _length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    return int(lowered[at + 15 : lowered.find(b"\r", at)]) if at >= 0 else 0
