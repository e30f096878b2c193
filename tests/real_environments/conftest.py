"""Servers of other people's environments, started with their packages' own Python."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from launch.free_ports import free_port
from launch.processes import start_process
from tests.agent_server.running import Start
from tests.llm_fixtures import POLICY, ROOT, await_healthy

TOOLS = ROOT / ".venv-tools"
START_SECONDS = 120.0
"""NeMo-Gym imports Ray and MLflow."""


class TheirServer:
    """A server of `package`, by the script in `servers/` and its arguments after the port."""

    def __init__(self, directory: Path, package: str, script: str, *arguments: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        python = TOOLS / package / "bin" / "python"
        command = [str(python), str(Path(__file__).parent / "servers" / script), str(port)]
        self._started = start_process(package, [*command, *arguments], directory / f"{port}.log")
        await_healthy(self._started, self.url, START_SECONDS)

    def die(self) -> None:
        self._started.kill()


class StartTheirs:
    """Starts their servers, and stops all of them at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[TheirServer] = []

    def __call__(self, package: str, script: str, *arguments: str) -> TheirServer:
        self._servers.append(TheirServer(self._directory, package, script, *arguments))
        return self._servers[-1]

    def openenv(self, game: str) -> TheirServer:
        return self("openenv", "openenv_game.py", game)

    def nemo_gym(self, name: str, kind: str) -> TheirServer:
        return self("nemo-gym", "nemo_gym_resources.py", name, kind)

    def stop(self) -> None:
        for server in self._servers:
            server.die()


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTheirs]:
    starts = StartTheirs(tmp_path_factory.mktemp("theirs"))
    yield starts
    starts.stop()


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate.load(POLICY)


@pytest.fixture
def start(template: ChatTemplate) -> Iterator[Start]:
    starts = Start(template)
    yield starts
    for running in starts.started:
        running.runner.close(5)
