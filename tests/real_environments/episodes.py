"""Episodes without a model: what the policy says is written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import MakeEnvironment, Opening, Response
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import Prompt, ToolCall
from tests.agent_server.fakes import SandboxOfNothing, Says
from tests.real_environments.conftest import TheirServer


@contextmanager
def begun(make: MakeEnvironment, row: dict[str, Any]) -> Iterator[tuple[InThread, Opening]]:
    episode = InThread(make)
    try:
        yield episode, episode.start(Prompt(prompt_id="row", instance=row), SandboxOfNothing())
    finally:
        episode.close()


def calling(name: str, **arguments: Any) -> Response:
    return Response(text="", calls=(ToolCall(call_id="1", name=name, arguments=arguments),))


def told(episode: InThread, response: Response) -> str:
    (message,) = episode.step(response).messages
    return message.content


class DiesBefore(Says):
    """A policy before whose second response the server is killed."""

    server: TheirServer

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        if self.requests:
            self.server.die()
        return super().generate(request, stop)
