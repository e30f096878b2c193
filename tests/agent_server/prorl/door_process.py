"""An agent server with a door, as a process."""

from collections.abc import Sequence
from pathlib import Path

from launch.free_ports import free_range
from launch.processes import Started
from rollyard.http import Peer
from tests.agent_server.fakes import OrchestratorForAgents
from tests.agent_server.prorl.client import ProrlClient
from tests.llm_fixtures import POLICY, start_module


class DoorProcess:
    """One agent server with a door, which can be killed and started again."""

    def __init__(self, directory: Path, orchestrator: OrchestratorForAgents, url: str) -> None:
        native, door = free_range(2)
        self.agent = Peer(f"http://127.0.0.1:{native}", name="agent server")
        self.client = ProrlClient(f"http://127.0.0.1:{door}")
        self._orchestrator = orchestrator
        self._options = ["--port", str(native), "--prorl-port", str(door), "--prorl-open"]
        self._options += ["--server-id", "agent-1", "--orchestrator", url]
        self._log = directory / "agent.log"
        self.process: Started | None = None

    def start(self, llm: str, *, slots: int = 2, options: Sequence[str] = ()) -> ProrlClient:
        arguments = ["agent_server", *self._options, "--llm-server", llm, "--model", str(POLICY)]
        arguments += ["--slots", str(slots), *options]
        self.process = start_module(arguments, self._log)
        assert self._orchestrator.registrations.get(timeout=60).slots == slots
        self.client.post("/start").raise_for_status()
        return self.client
