"""The agent server as a process: `python -m agent_server`, a stand-in LLM, a fake orchestrator."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests

from agent_server.runner import Status
from rollyard.errors import Conflict, InvalidMessage, Unavailable
from rollyard.http import Peer
from rollyard.messages import Limits, Outcome
from serving.api import Accepted
from tests.agent_server.fakes import PATIENCE_SECONDS, FakeOrchestrator, assign, make_job
from tests.llm_fixtures import POLICY, ROOT, free_port, start_process, stop_process

StartAgentServer = Callable[..., Peer]


class Started:
    """Agent servers of one test, by Peer."""

    def __init__(self, directory: Path, orchestrator: FakeOrchestrator, url: str) -> None:
        self._directory = directory
        self._orchestrator = orchestrator
        self._url = url
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, llm: str, *, slots: int = 4) -> Peer:
        """A registered agent server."""
        port = free_port()
        arguments = ["agent_server", "--port", str(port), "--server-id", "agent-1"]
        arguments += ["--orchestrator", self._url, "--llm-server", llm]
        arguments += ["--model", str(POLICY), "--slots", str(slots)]
        process = start_process(arguments, self._directory / f"agent-{port}.log")
        self.processes.append(process)
        registered = self._orchestrator.registrations.get(timeout=30)
        return Peer(registered.url, name="agent server")


@pytest.fixture
def started(
    tmp_path: Path, orchestrator: FakeOrchestrator, orchestrator_url: str
) -> Iterator[Started]:
    servers = Started(tmp_path, orchestrator, orchestrator_url)
    yield servers
    for process in servers.processes:
        stop_process(process)


def test_a_job_goes_through_tool_and_answer_to_a_reward(
    started: Started, orchestrator: FakeOrchestrator, llm: str
) -> None:
    agent = started.start(llm)
    agent.post("/jobs", assign(make_job()), Accepted)
    result = orchestrator.result()
    assert result.error == ""
    assert result.outcome is Outcome.COMPLETED
    assert result.reward == 1.0
    assert result.trajectory is not None
    said = [(message.role, message.content) for message in result.trajectory.messages]
    assert said == [
        ("user", "37*48"),
        ("assistant", "<tool_call>37*48</tool_call>"),
        ("tool", "1776"),
        ("assistant", "1776"),
    ]
    assert result.timings.run_seconds > 0
