"""The process of one environment at work on one trajectory: it answers the server's requests."""

import os
import socket
import threading
from collections.abc import Sequence

from agent_server.environments.hosted import frames
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, MakeEnvironment
from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable
from rollyard.errors import Unavailable


def serve(server: socket.socket, make: MakeEnvironment) -> None:
    """Answer requests until the server closes its end."""
    episode, sandbox, process = InThread(make), RemoteSandbox(server), os.getpid()
    while (request := frames.receive(server)) is not None:
        answer = _answer(episode, sandbox, request)
        if os.getpid() != process:
            return  # the environment has forked, and only one of the two may answer
        try:
            frames.send(server, answer)
        except (ValueError, frames.BadFrame) as error:  # text that is not Unicode, or too much
            reason = f"the environment's answer cannot be sent: {error}"
            frames.send(server, frames.Failed(reason))


def _answer(episode: InThread, sandbox: "RemoteSandbox", request: frames.Frame) -> frames.Frame:
    try:
        if isinstance(request, frames.StartFrame):
            return frames.Opened(episode.start(request.prompt, sandbox))
        if isinstance(request, frames.StepFrame):
            return frames.Observed(episode.step(request.response))
        if isinstance(request, frames.Solve):
            episode.solve()
            return frames.Solved()
        assert isinstance(request, frames.GradeFrame)
        return frames.Graded(episode.grade())
    except EnvironmentFailed as error:
        return frames.Failed(error.message.encode(errors="backslashreplace").decode())
    except Unavailable as error:
        return frames.Failed(error.message, unavailable=True)


class RemoteSandbox:
    """A `Sandbox` that passes commands to the server, which holds the attempt's real one."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._turn = threading.Lock()

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        words = tuple(word.encode(errors="surrogatepass") for word in argv)
        command = frames.RunFrame(words, stdin.encode(errors="surrogatepass"), deadline_seconds)
        with self._turn:
            frames.send(self._server, command)
            answer = frames.receive(self._server)
        if isinstance(answer, frames.Ran):
            return answer.result
        reason = answer.reason if isinstance(answer, frames.Failed) else "the server is gone"
        raise SandboxUnavailable(reason)

    def close(self) -> None:
        """Do nothing: the server closes the sandbox when the attempt is over."""
