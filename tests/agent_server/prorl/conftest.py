"""Doors in this process, and LLM servers that are overheard, for tests of the ProRL door."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from flask import Flask, Response, request

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.in_thread import in_thread
from agent_server.jobs.runner import RunnerSettings
from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.prorl.app import create_door_app
from agent_server.prorl.door import ProrlDoor
from agent_server.prorl.llm_servers import BroughtLLMServers
from agent_server.prorl.settings import DoorSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from serving.bind import Bind
from tests.agent_server.fakes import OrchestratorForAgents
from tests.agent_server.prorl.client import PATIENCE_SECONDS, ProrlClient
from tests.agent_server.prorl.door_process import DoorProcess
from tests.agent_server.running import AGENTS
from tests.serving_threads import served


class Overheard:
    """An LLM server's requests and answers, as it saw them."""

    def __init__(self, url: str) -> None:
        self.target = url
        self.url = ""
        self.turns: list[tuple[list[int], list[int]]] = []
        """Prompt and response of each Turn."""
        self.logprobs: list[list[float]] = []
        """The response's, of each Turn."""
        self.answers = threading.Event()
        """While it is not set, no Turn is answered."""
        self.answers.set()

    def app(self) -> Flask:
        app = Flask("overheard")

        @app.route("/<path:path>", methods=["GET", "POST"])
        def forward(path: str) -> Response:
            sent = request.get_data()
            if path == "inference/v1/generate":
                self.answers.wait(PATIENCE_SECONDS)
            url = f"{self.target}/{path}"
            answer = requests.request(
                request.method, url, data=sent, headers={"Content-Type": "application/json"}
            )
            if path == "inference/v1/generate" and answer.ok:
                prompt, said = request.get_json(force=True), answer.json()["choices"][0]
                self.turns.append((prompt["token_ids"], said["token_ids"]))
                self.logprobs.append([each["logprob"] for each in said["logprobs"]["content"]])
            return Response(answer.content, answer.status_code, mimetype="application/json")

        return app


@pytest.fixture
def overheard(llm: str) -> Iterator[Overheard]:
    """The tool-using stand-in, overheard."""
    between = Overheard(llm)
    with served(between.app()) as between.url:
        yield between
        between.answers.set()


@pytest.fixture
def door(
    tmp_path: Path, orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> Iterator[DoorProcess]:
    process = DoorProcess(tmp_path, orchestrator, orchestrator_url)
    yield process
    if process.process is not None:
        process.process.stop()


class OpenDoor(Protocol):
    def __call__(self, *llm_servers: str, **settings: Any) -> ProrlClient:
        """A client of a new door; the agent server's own LLM servers are these."""


@pytest.fixture
def new_door(template: ChatTemplate, sandboxes: Bubblewrap) -> Iterator[OpenDoor]:
    with_ends: list[tuple[Any, ProrlDoor, LLMClient]] = []

    def make(*llm_servers: str, slots: int = 4, **settings: Any) -> ProrlClient:
        own = LLMClient(LLMSettings(servers=llm_servers))
        stages = Stages(
            environments={"arithmetic": in_thread(Arithmetic), "apps": in_thread(Arithmetic)},
            agents=AGENTS,
            sandboxes=sandboxes,
            policy=own,
            template=template,
        )
        runner = RunnerSettings(slots=slots)
        usual = DoorSettings(bind=Bind(port=1), runner=runner, share=slots, **settings)
        shared = SharedSlots(runner, lambda: None)
        door = ProrlDoor(usual, stages, BroughtLLMServers(own), shared)
        serving = served(create_door_app("agent-1", door))
        url = serving.__enter__()
        with_ends.append((serving, door, own))
        return ProrlClient(url)

    yield make
    for serving, door, own in with_ends:
        door.close(5)
        serving.__exit__(None, None, None)
        own.close()
