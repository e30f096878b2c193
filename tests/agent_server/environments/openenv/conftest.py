"""OpenEnv servers for tests, in a process of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests

from launch.free_ports import free_port
from launch.processes import Started, start_process
from tests.llm_fixtures import VLLM_PYTHON, await_healthy

START_SECONDS = 60.0


class OpenEnvServer:
    """A server of one game."""

    def __init__(self, game: str, directory: Path, sessions: int = 16) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        script = Path(__file__).parent / "server.py"
        command = [str(VLLM_PYTHON), str(script), str(port), game, str(sessions)]
        self._started: Started = start_process(
            f"openenv-{game}", command, directory / "openenv.log"
        )
        await_healthy(self._started, self.url, START_SECONDS)

    def row(self, **fields: Any) -> dict[str, Any]:
        return {"data_source": "openenv", "url": self.url, **fields}

    def sessions(self) -> int:
        """Number of environments that the server keeps."""
        answer = requests.get(f"{self.url}/health", timeout=START_SECONDS)
        return int(answer.json()["sessions"])

    def die(self) -> None:
        self._started.kill()


class StartOpenEnv(Protocol):
    def __call__(self, game: str, *, sessions: int = 16) -> OpenEnvServer: ...


@pytest.fixture(scope="module")
def start_openenv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartOpenEnv]:
    """Starts servers, and stops them all at the end of the module."""
    servers: list[OpenEnvServer] = []

    def start(game: str, *, sessions: int = 16) -> OpenEnvServer:
        servers.append(OpenEnvServer(game, tmp_path_factory.mktemp(game), sessions))
        return servers[-1]

    yield start
    for server in servers:
        server.die()


@pytest.fixture(scope="module")
def guess(start_openenv: StartOpenEnv) -> OpenEnvServer:
    return start_openenv("guess")
