"""What gateway tests share: a gateway, and tasks whose policy says what a test has it say."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Policy, Task
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.session import GatewaySession
from rollyard.messages import Limits
from tests.agent_server.fakes import EchoEnvironment, make_job

MakeTask = Callable[..., Task]
LIMITS = Limits(max_turns=8, max_tokens=2000, job_seconds=30)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    opened = Gateway()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def make_task(template: ChatTemplate) -> MakeTask:
    def make(policy: Policy, limits: Limits = LIMITS) -> Task:
        return Task(
            name="t",
            job=make_job(limits=limits),
            opening=Opening(messages=()),
            prompt=(),
            environment=InThread(EchoEnvironment),
            policy=policy,
            template=template,
        )

    return make


class Listens:
    """A `WaitingClient` that keeps what it is sent."""

    def __init__(self) -> None:
        self.gone = StopSignal()
        self.heard = b""
        self.takes_more = True

    def send(self, events: bytes) -> None:
        self.heard += events

    def reminded(self, remind: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()


class Client:
    """A client that speaks HTTP by hand."""

    def __init__(self, session: GatewaySession) -> None:
        self.url, self.key = session.url, session.key

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        told = {"Authorization": f"Bearer {self.key}", **headers}
        return requests.post(f"{self.url}{path}", json=body, headers=told, timeout=20)

    def get(self, path: str) -> requests.Response:
        told = {"Authorization": f"Bearer {self.key}"}
        return requests.get(f"{self.url}{path}", headers=told, timeout=20)
