"""The stand-in for the sandbox of an environment that asked for none."""

from collections.abc import Sequence

from agent_server.environments.protocol import EnvironmentFailed
from agent_server.sandbox.protocol import CommandResult


class NoSandbox:
    """A `Sandbox` that runs nothing."""

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        raise EnvironmentFailed(
            "the environment runs commands and says that it needs no sandbox",
            fix="put needs = Needs(sandbox=SandboxNeeds()) into its class",
        )

    def close(self) -> None:
        pass
