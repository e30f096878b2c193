"""Doors in this process and as processes, for tests of the NeMo-Gym door."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.in_thread import in_thread
from agent_server.environments.nemo_gym import NemoGym
from agent_server.jobs.runner import RunnerSettings
from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.nemo_gym.app import create_nemo_gym_app
from agent_server.nemo_gym.door import NemoGymDoor
from agent_server.nemo_gym.settings import NemoGymSettings
from agent_server.prorl.settings import DoorSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from launch.free_ports import free_range
from launch.processes import Started
from rollyard.tokens import NO_TOKENS, Tokens
from serving.bind import Bind
from tests.agent_server.fakes import OrchestratorForAgents
from tests.agent_server.nemo_gym.client import GymClient
from tests.agent_server.prorl.conftest import Overheard
from tests.agent_server.running import AGENTS
from tests.llm_fixtures import POLICY, start_module
from tests.serving_threads import served

SLOTS = 4


@pytest.fixture
def overheard(llm: str) -> Iterator[Overheard]:
    """The tool-using stand-in, overheard."""
    between = Overheard(llm)
    with served(between.app()) as between.url:
        yield between
        between.answers.set()


class OpenDoor(Protocol):
    def __call__(
        self, *llm_servers: str, tokens: Tokens = NO_TOKENS, seconds: float = 300, **settings: Any
    ) -> GymClient:
        """A client of a new door; the agent server's LLM servers are these."""


@pytest.fixture
def new_door(template: ChatTemplate, sandboxes: Bubblewrap) -> Iterator[OpenDoor]:
    with_ends: list[tuple[Any, NemoGymDoor, LLMClient]] = []

    def make(
        *llm_servers: str, tokens: Tokens = NO_TOKENS, seconds: float = 300, **settings: Any
    ) -> GymClient:
        own = LLMClient(LLMSettings(servers=llm_servers))
        stages = Stages(
            environments={"arithmetic": in_thread(Arithmetic), "nemo_gym": in_thread(NemoGym)},
            agents=AGENTS,
            sandboxes=sandboxes,
            policy=own,
            template=template,
        )
        runner = RunnerSettings(slots=SLOTS)
        door_settings = DoorSettings(
            bind=Bind(host="10.0.0.7", port=9, insecure=True),
            tokens=tokens,
            runner=runner,
            share=SLOTS,
            job_seconds=seconds,
        )
        usual = {"pause_seconds": 0.01, **settings}
        shared = SharedSlots(runner, lambda: None)
        door = NemoGymDoor(NemoGymSettings(door=door_settings, **usual), stages, own, shared)
        door.start()
        serving = served(create_nemo_gym_app("agent-1", door))
        url = serving.__enter__()
        with_ends.append((serving, door, own))
        return GymClient(url, tokens.widest if tokens else "")

    yield make
    for serving, door, own in with_ends:
        door.close(5)
        serving.__exit__(None, None, None)
        own.close()


class GymDoorProcess:
    """An agent server with a NeMo-Gym door, as a process."""

    def __init__(
        self,
        directory: Path,
        orchestrator: OrchestratorForAgents,
        url: str,
        server_id: str = "agent-1",
    ) -> None:
        native, door = free_range(2)
        self.client = GymClient(f"http://127.0.0.1:{door}")
        self._orchestrator = orchestrator
        self._options = ["--port", str(native), "--nemo-gym-port", str(door)]
        self._options += ["--server-id", server_id, "--orchestrator", url]
        self.log = directory / "agent.log"
        self.process: Started | None = None

    def start(
        self,
        llm: str,
        *,
        slots: int = 2,
        model: Path = POLICY,
        access: Sequence[str] = ("--nemo-gym-open",),
        options: Sequence[str] = (),
    ) -> GymClient:
        arguments = ["agent_server", *self._options, "--llm-server", llm, "--model", str(model)]
        arguments += ["--slots", str(slots), *access, *options]
        self.process = start_module(arguments, self.log)
        assert self._orchestrator.registrations.get(timeout=60).slots == slots
        return self.client

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


@pytest.fixture
def door(
    tmp_path: Path, orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> Iterator[GymDoorProcess]:
    process = GymDoorProcess(tmp_path, orchestrator, orchestrator_url)
    yield process
    process.stop()
