"""A proxy between an orchestrator and Redis that strikes at a named point of the work.

A point is a move of the queues and a side of it: before, Redis has not heard of the move; after, it
is made and the orchestrator has not heard that.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from enum import StrEnum

import msgspec

from chaos.listener import Listener
from chaos.settings import HOST
from orchestrator.queues import Queues

CHUNK_BYTES = 65536
MAX_ANSWER_BYTES = 1 << 24
TELL = "tell"
"""The one move that is no script: a transaction."""
MARK = b"the move is made"
_ASK_FOR_MARK = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(MARK), MARK)


class Side(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class CrashPoint(msgspec.Struct, frozen=True):
    move: str
    side: Side

    def __str__(self) -> str:
        return f"{self.side} {self.move}"


class CrashProxy(Listener):
    """Serves at `url`. Strikes once each time it is armed."""

    def __init__(self, redis_port: int, strike: Callable[[], None]) -> None:
        self._redis_port = redis_port
        self._strike = strike
        self._armed: CrashPoint | None = None
        self._skip = 0
        self.struck = threading.Event()
        self.late_answer = ""
        """What Redis said to a move that was held back before it, and went on."""
        self._go_on = asyncio.Event()
        queues = Queues(f"redis://{HOST}:{redis_port}")  # connects to nothing yet
        self._scripts = {script.sha: name for name, script in queues.connection.scripts.items()}
        super().__init__("crash", port=0)
        self.url = f"redis://{HOST}:{self.port}"

    def arm(self, point: CrashPoint, skip: int = 0) -> None:
        """Strike at the point, but not for the first `skip` times that it is passed."""
        self.struck.clear()

        def arm() -> None:
            self._armed, self._skip = point, skip

        self._loop.call_soon_threadsafe(arm)

    def go_on(self) -> None:
        """Let what was held back before its move pass, late."""
        self._loop.call_soon_threadsafe(self._go_on.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.closing(writer), contextlib.suppress(*ended):
            answers, redis = await asyncio.open_connection(
                HOST, self._redis_port, limit=MAX_ANSWER_BYTES
            )
            with contextlib.closing(redis):
                await self._carry(reader, redis, answers, writer)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        redis: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Command by command; a connection has one move on its way at a time."""
        moves = _Moves(self._scripts)
        while True:
            back = asyncio.ensure_future(_carry_back(answers, writer))
            try:
                raw, side = await self._carry_until_reached(reader, redis, moves)
            finally:
                back.cancel()
                await asyncio.wait([back])
            if side is Side.AFTER:
                redis.write(raw + _ASK_FOR_MARK)
                await answers.readuntil(MARK)
                return self._hit()
            self._hit()
            await self._go_on.wait()
            redis.write(raw)
            answer = await answers.read(CHUNK_BYTES)
            self.late_answer = answer.decode().strip()
            writer.write(answer)

    async def _carry_until_reached(
        self, reader: asyncio.StreamReader, redis: asyncio.StreamWriter, moves: "_Moves"
    ) -> tuple[bytes, Side]:
        """Returns the command that is at the armed point."""
        while True:
            raw, command = await _read_command(reader)
            side = self._reached(moves.move(command))
            if side is not None:
                return raw, side
            redis.write(raw)
            await redis.drain()

    def _hit(self) -> None:
        self._strike()
        self.struck.set()

    def _reached(self, move: str | None) -> Side | None:
        """Which side of the armed point this move is on, if it is there."""
        if move is None or self._armed is None or self._armed.move != move:
            return None
        if self._skip:
            self._skip -= 1
            return None
        side, self._armed = self._armed.side, None
        return side


class _Moves:
    """Which move a command of one connection makes, if it makes one."""

    def __init__(self, scripts: dict[str, str]) -> None:
        self._scripts = scripts
        """By digest."""
        self._telling = False

    def move(self, command: list[bytes]) -> str | None:
        match [command[0].upper(), *command[1:]]:
            case [b"EVALSHA", digest, *_]:
                return self._scripts.get(digest.decode())
            case [b"RPUSH", key, _] if key.endswith(b":events"):
                self._telling = True
            case [b"EXEC"] if self._telling:
                self._telling = False
                return TELL
        return None


async def _carry_back(answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while answer := await answers.read(CHUNK_BYTES):
            writer.write(answer)
            await writer.drain()
        writer.close()


async def _read_command(reader: asyncio.StreamReader) -> tuple[bytes, list[bytes]]:
    raw = await reader.readuntil(b"\r\n")
    command = []
    for _ in range(int(raw[1:])):
        size = await reader.readuntil(b"\r\n")
        word = await reader.readexactly(int(size[1:]) + 2)
        raw += size + word
        command.append(word[:-2])
    return raw, command
