"""The process of one environment at work on one trajectory: it answers the server in turn."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from agent_server.environments.hosted.frames import (
    BadFrame,
    Failed,
    Frame,
    Grade,
    Graded,
    Observed,
    Opened,
    Ran,
    RunFrame,
    SandboxFailed,
    StartFrame,
    StepFrame,
    receive,
    send,
)
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, MakeEnvironment
from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable
from rollyard.errors import Unavailable


def serve(server: socket.socket, make: MakeEnvironment) -> None:
    """Until the server closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # made anew, for what they wrote to was replaced by a pipe; by lines, so that none is lost
    sys.stdout = sys.stderr = open(  # noqa: SIM115 - closed by the process's end
        1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    episode, sandbox, process = InThread(make), RemoteSandbox(server), os.getpid()
    while (request := receive(server)) is not None:
        answer = _answer(episode, sandbox, request)
        if os.getpid() != process:
            return  # the environment has forked, and only one of the two may answer
        try:
            send(server, answer)
        except (ValueError, BadFrame) as error:  # text that is no Unicode, or far too much of it
            send(server, Failed(f"the environment's answer cannot be sent: {error}"))


def _answer(episode: InThread, sandbox: "RemoteSandbox", request: Frame) -> Frame:
    try:
        if isinstance(request, StartFrame):
            return Opened(episode.start(request.prompt, sandbox))
        if isinstance(request, StepFrame):
            return Observed(episode.step(request.response))
        assert isinstance(request, Grade)
        return Graded(episode.grade())
    except EnvironmentFailed as error:
        return Failed(error.message.encode(errors="backslashreplace").decode())
    except Unavailable as error:
        return Failed(error.message, unavailable=True)


class RemoteSandbox:
    """The attempt's sandbox, which the server holds."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._turn = threading.Lock()

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        words = tuple(word.encode(errors="surrogatepass") for word in argv)
        command = RunFrame(words, stdin.encode(errors="surrogatepass"), deadline_seconds)
        with self._turn:
            send(self._server, command)
            answer = receive(self._server)
        if isinstance(answer, Ran):
            return answer.result
        reason = answer.reason if isinstance(answer, SandboxFailed) else "the server is gone"
        raise SandboxUnavailable(reason)

    def close(self) -> None:
        """The server closes it when the attempt is over."""
