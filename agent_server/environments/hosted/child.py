"""The process of one environment at work on one trajectory: it answers the server's requests."""

import os
import socket

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.remote_rewards import HostedRewards
from agent_server.environments.hosted.remote_sandbox import RemoteSandbox, ServerLine
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed, MakeEnvironment
from rollyard.errors import Unavailable


def serve(server: socket.socket, make: MakeEnvironment) -> None:
    """Answer requests until the server closes its end."""
    line, process = ServerLine(server), os.getpid()
    episode, sandbox = InThread(make, HostedRewards(line)), RemoteSandbox(line, 0)
    while (request := frames.receive(server)) is not None:
        answer = _answer(episode, sandbox, request)
        if os.getpid() != process:
            return  # the environment has forked, and only one of the two may answer
        try:
            frames.send(server, answer)
        except (TypeError, ValueError, frames.BadFrame) as error:
            # No message, text that is not Unicode, or too much.
            reason = f"the environment's answer cannot be sent: {error}"
            frames.send(server, frames.Failed(reason))


def _answer(episode: InThread, sandbox: RemoteSandbox, request: frames.Frame) -> frames.Frame:
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
        return frames.Failed(str(error).encode(errors="backslashreplace").decode())
    except Unavailable as error:
        return frames.Failed(error.message, unavailable=True)
