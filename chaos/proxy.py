"""A TCP proxy that loses replies: the request arrives, and the connection ends without an answer.

It spreads connections over the servers behind it, and ends them while all of these are away. While
it is cut, it acts as an unplugged cable: nothing passes, and no connection ends. It is seeded.
"""

import asyncio
import contextlib
import random

from chaos.listener import Listener
from chaos.settings import HOST

CHUNK_BYTES = 65536


class LossyProxy(Listener):
    def __init__(self, port: int, target_ports: list[int], lost_share: float, seed: int) -> None:
        self._target_ports = target_ports
        self._lost_share = lost_share
        self._random = random.Random(f"proxy {seed}")
        self.lost = 0
        self._whole = asyncio.Event()
        self._whole.set()
        super().__init__("proxy", port)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            answers, requests = await self._connect()
            with contextlib.closing(requests):
                pumps = {
                    asyncio.ensure_future(self._pump(reader, requests)),
                    asyncio.ensure_future(self._pump_some(answers, writer)),
                }
                _, open_pumps = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in open_pumps:
                    pump.cancel()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to any server that is up. Raises `OSError` if none is."""
        ports = self._random.sample(self._target_ports, len(self._target_ports))
        for port in ports[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, port)
        return await asyncio.open_connection(HOST, ports[-1])

    async def _pump_some(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while answer := await source.read(CHUNK_BYTES):
                if self._random.random() < self._lost_share:
                    self.lost += 1
                    return
                await self._pass(answer, sink)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while request := await source.read(CHUNK_BYTES):
                await self._pass(request, sink)

    async def _pass(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        sink.write(data)
        await sink.drain()
