"""The sandboxes of an environment as its process sees them: each call is a request to the server,
which holds the real ones."""

import socket
import threading
from collections.abc import Sequence
from typing import TypeVar

from agent_server.environments.hosted import frames
from agent_server.sandbox.protocol import (
    CommandResult,
    FileRefused,
    Sandbox,
    SandboxUnavailable,
)

F = TypeVar("F", bound=frames.Frame)


class ServerLine:
    """The connection with the server, on which one request waits for the other."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._turn = threading.Lock()

    def exchange(self, request: frames.Frame) -> frames.Frame | None:
        """The server's next frame; None if it is gone. Raises `BadFrame` for a request that is too
        large."""
        with self._turn:
            frames.send(self._server, request)
            return frames.receive(self._server)

    def ask(self, request: frames.SandboxRequest, wanted: type[F]) -> F:
        """The answer to `request`. Raises the errors of a `Sandbox`, and `BadFrame`."""
        answer = self.exchange(request)
        if isinstance(answer, wanted):
            return answer
        if isinstance(answer, frames.FileRefusedFrame):
            raise FileRefused(answer.reason)
        reason = answer.reason if isinstance(answer, frames.Failed) else "the server is gone"
        raise SandboxUnavailable(reason)


class RemoteSandbox(Sandbox):
    """The sandbox of this number; 0 is the attempt's own, which the server closes."""

    def __init__(self, line: ServerLine, number: int) -> None:
        self._line = line
        self._number = number

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        words, text = tuple(map(_bytes, argv)), _bytes(stdin)
        request = frames.RunFrame(self._number, words, text, deadline_seconds)
        return self._line.ask(request, frames.Ran).result

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        request = frames.BashFrame(self._number, _bytes(command), deadline_seconds)
        return self._line.ask(request, frames.Ran).result

    def write(self, path: str, content: bytes) -> None:
        request = frames.WriteFrame(self._number, _bytes(path), bytes(content))
        try:
            self._line.ask(request, frames.FileFrame)
        except frames.BadFrame as error:
            raise FileRefused(f"{path!r} cannot be written: {error}") from error

    def read(self, path: str, *, most_bytes: int) -> bytes:
        request = frames.ReadFrame(self._number, _bytes(path), most_bytes)
        return self._line.ask(request, frames.FileFrame).content

    def fresh(self) -> Sandbox:
        answer = self._line.ask(frames.FreshFrame(self._number), frames.Numbered)
        return RemoteSandbox(self._line, answer.sandbox)

    def close(self) -> None:
        if self._number:
            self._line.ask(frames.CloseFrame(self._number), frames.Numbered)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
