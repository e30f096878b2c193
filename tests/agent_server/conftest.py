"""What agent server tests share: the policy's chat template, sandboxes, LLM servers, a peer."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from launch.free_ports import free_port
from llm_servers.scripted.faults import FaultKind
from llm_servers.server import LLMServer
from rollyard.messages import Trajectory
from tests.agent_server.fakes import OrchestratorForAgents
from tests.agent_server.running import Start
from tests.agent_server.undisturbed import run_undisturbed
from tests.llm_fixtures import (
    POLICY,
    SCRIPTED_START_SECONDS,
    await_healthy,
    label,
    policy_of_many_ends,
    publish,
    start_module,
)
from tests.serving_threads import served


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate.load(POLICY)


@pytest.fixture(scope="session")
def many_ends(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    """The policy's chat template, for a model whose responses may end in three ways."""
    return ChatTemplate.load(policy_of_many_ends(tmp_path_factory.mktemp("many-ends")))


@pytest.fixture(scope="session")
def undisturbed(template: ChatTemplate) -> Trajectory:
    return run_undisturbed(template)


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Bubblewrap]:
    maker = Bubblewrap(SandboxSettings())
    yield maker
    maker.close()


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


@pytest.fixture
def orchestrator() -> OrchestratorForAgents:
    return OrchestratorForAgents()


@pytest.fixture
def orchestrator_url(orchestrator: OrchestratorForAgents) -> Iterator[str]:
    with served(orchestrator.app()) as url:
        yield url


def _scripted(directory: Path, *options: str) -> Iterator[str]:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", directory / "scripted.log"
    started = start_module(
        ["llm_servers.scripted", "--model", str(POLICY), "--port", str(port), *options], log
    )
    try:
        await_healthy(started, url, SCRIPTED_START_SECONDS)
        label(url, 0)
        yield url
    finally:
        started.stop()


@pytest.fixture(scope="session")
def _tool_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _scripted(tmp_path_factory.mktemp("tool-user"), "--tool-rate", "1")


@pytest.fixture(scope="session")
def slow_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stand-in that always calls the tool and needs a quarter of a second for each token."""
    options = ("--tool-rate", "1", "--token-seconds", "0.25")
    yield from _scripted(tmp_path_factory.mktemp("slow"), *options)


@pytest.fixture
def llm(_tool_user: str) -> Iterator[str]:
    """A stand-in that always calls the tool, and whose faults end with the test."""
    yield _tool_user
    for kind in FaultKind:
        requests.post(f"{_tool_user}/script/faults", json={"kind": kind, "times": 0}, timeout=5)


@pytest.fixture
def vllm_control(vllm_llm: str) -> Iterator[LLMServer]:
    """The real vLLM's control routes; it is left as it was."""
    control = LLMServer(vllm_llm)
    version = control.version() or 0
    yield control
    publish(control, POLICY, version)
    control.close()


@pytest.fixture
def start(template: ChatTemplate) -> Iterator[Start]:
    starter = Start(template)
    yield starter
    for running in starter.started:
        running.runner.close(5)


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files of this test alone."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # pytest's own temporary directories are closed to others
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield Path(directory)
