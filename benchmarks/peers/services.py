"""The services that play, and where they are installed."""

import sys
from pathlib import Path

import msgspec

from rollyard.errors import LaunchError

ROOT = Path(__file__).parents[2]


class Entrant(msgspec.Struct, frozen=True):
    name: str
    module: str
    environment: str = ""
    """Directory of its environment; empty for ours."""
    note: str = ""
    """What bounds it by its own documentation or source."""

    @property
    def python(self) -> str:
        """The Python that runs it. Raises `LaunchError`."""
        if not self.environment:
            return sys.executable
        python = ROOT / self.environment / "bin" / "python"
        if not python.exists():
            raise LaunchError(f"{python} does not exist", fix="sh launch/environment.sh peers")
        return str(python)


_ENTRANTS = "benchmarks.peers.entrants"
OURS = Entrant("rollyard", f"{_ENTRANTS}.rollyard_service")
PEERS = (
    Entrant("verifiers", f"{_ENTRANTS}.verifiers_service", ".venv-peers/verifiers"),
    Entrant(
        "nemo_gym",
        f"{_ENTRANTS}.nemo_gym_service",
        ".venv-peers/nemo-gym",
        "one process of its agent server, which nobody starts again; requests have no time limit",
    ),
    Entrant(
        "agent_lightning",
        f"{_ENTRANTS}.agent_lightning_service",
        ".venv-peers/agent-lightning",
        "its trainer takes a rollout that failed as one with the reward 0.0",
    ),
)
