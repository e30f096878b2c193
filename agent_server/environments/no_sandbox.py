"""The stand-in for the sandbox of an environment that asked for none."""

from collections.abc import Sequence

from agent_server.environments.protocol import EnvironmentFailed
from agent_server.sandbox.protocol import CommandResult, Sandbox


class NoSandbox(Sandbox):
    """A `Sandbox` that runs nothing and has no files."""

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        raise _not_asked_for("runs commands")

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        raise _not_asked_for("runs commands")

    def write(self, path: str, content: bytes) -> None:
        raise _not_asked_for("writes files")

    def read(self, path: str, *, most_bytes: int) -> bytes:
        raise _not_asked_for("reads files")

    def fresh(self) -> Sandbox:
        raise _not_asked_for("opens a fresh sandbox")

    def close(self) -> None:
        pass


def _not_asked_for(doing: str) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"the environment {doing} and says that it needs no sandbox",
        fix="put needs = Needs(sandbox=SandboxNeeds()) into its class",
    )
