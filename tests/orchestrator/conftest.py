"""What most tests of the queues begin with."""

from collections.abc import Callable, Iterator

import pytest

from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Open
from orchestrator.service import Orchestrator
from rollyard import Client
from rollyard.messages import AgentServer, Prompt, RunSettings
from tests.orchestrator.moves import decide
from tests.serving_threads import served


@pytest.fixture
def settings() -> RunSettings:
    return RunSettings(run_id="train", group_size=2, max_infra_failures=3)


@pytest.fixture
def prompt() -> Callable[[str], Prompt]:
    return lambda prompt_id: Prompt(prompt_id=prompt_id, instance={"data_source": "arithmetic"})


@pytest.fixture
def server() -> AgentServer:
    return AgentServer(
        server_id="agent-0", url="http://127.0.0.1:9", slots=2, environments=("arithmetic",)
    )


@pytest.fixture
def open_queues(
    queues: Queues, settings: RunSettings, server: AgentServer, prompt: Callable[[str], Prompt]
) -> Queues:
    """An open Run with one Group of two Jobs and one server with two Slots."""
    queues.runs.create(settings)
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0")])
    decide(queues, Open())
    return queues


@pytest.fixture
def orchestrator(patient_queues: Queues) -> Iterator[Orchestrator]:
    orchestrator = Orchestrator(patient_queues)
    yield orchestrator
    orchestrator.close()


@pytest.fixture
def url(orchestrator: Orchestrator) -> Iterator[str]:
    with served(create_app(orchestrator)) as served_at:
        yield served_at


@pytest.fixture
def client(url: str) -> Client:
    return Client(url, patience_seconds=2)
