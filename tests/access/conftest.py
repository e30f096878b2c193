"""The apps of all services, each with the tokens of `tests.access.credentials`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from agent_server.agents.chat_template import ChatTemplate
from agent_server.app import create_app as agent_server_app
from agent_server.environments.in_thread import in_thread
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.metrics import Metrics
from agent_server.nemo_gym.app import create_nemo_gym_app
from agent_server.nemo_gym.door import NemoGymDoor
from agent_server.nemo_gym.settings import NemoGymSettings
from agent_server.prorl.app import create_door_app
from agent_server.prorl.door import ProrlDoor
from agent_server.prorl.llm_servers import BroughtLLMServers
from agent_server.prorl.settings import DoorSettings
from launch.demo import POLICY
from llm_servers.app import create_app as llm_node_app
from llm_servers.node import Node, NodeSettings
from orchestrator.app import create_app as orchestrator_app
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from serving.bind import Bind
from tests.access.credentials import TOKENS
from tests.agent_server.fakes import EchoEnvironment, NeverAnswers, SandboxesOfNothing
from tests.agent_server.running import AGENTS
from tests.queue_fixtures import QueueMaker


@pytest.fixture(scope="module")
def orchestrator(make_queues: QueueMaker) -> Iterator[Flask]:
    running = Orchestrator(make_queues(Queues, lease_seconds=600.0))
    yield orchestrator_app(running, TOKENS)
    running.close()


@pytest.fixture(scope="module")
def stages() -> Stages:
    return Stages(
        environments={"echo": in_thread(EchoEnvironment)},
        agents=AGENTS,
        sandboxes=SandboxesOfNothing(),
        policy=NeverAnswers(),
        template=ChatTemplate.load(POLICY),
    )


@pytest.fixture(scope="module")
def prorl_door(stages: Stages) -> Iterator[Flask]:
    runner = RunnerSettings(slots=2)
    settings = DoorSettings(bind=Bind(port=9), runner=runner, share=1, tokens=TOKENS)
    llm = BroughtLLMServers(LLMClient(LLMSettings(servers=())))
    door = ProrlDoor(settings, stages, llm, SharedSlots(runner, lambda: None))
    yield create_door_app("agent-0", door)
    door.close(5)


@pytest.fixture(scope="module")
def nemo_gym_door(stages: Stages) -> Iterator[Flask]:
    runner = RunnerSettings(slots=2)
    settings = DoorSettings(bind=Bind(port=9), runner=runner, share=1, tokens=TOKENS)
    slots = SharedSlots(runner, lambda: None)
    own = LLMClient(LLMSettings(servers=()))
    door = NemoGymDoor(NemoGymSettings(door=settings, llm_seconds=0.1), stages, own, slots)
    yield create_nemo_gym_app("agent-0", door)
    door.close(5)


@pytest.fixture(scope="module")
def agent_server(stages: Stages) -> Iterator[Flask]:
    metrics = Metrics()
    runner = JobRunner(RunnerSettings(slots=1), stages, metrics, lambda _: None)
    yield agent_server_app("agent-0", runner, metrics, lambda: "", TOKENS)
    runner.close(5)


@pytest.fixture(scope="module")
def llm_node() -> Iterator[Flask]:
    settings = NodeSettings(
        bind=Bind(port=9),
        servers=("http://127.0.0.1:9",),
        model=Path("/models/tiny"),
        orchestrator="http://127.0.0.1:9",
        node_id="node",
    )
    node = Node(settings)
    yield llm_node_app(node, TOKENS)
    node.close()
