"""The shell of an agent: commands in the sandbox's persistent bash session."""

from collections.abc import Mapping
from typing import Any

from agent_server.sandbox.protocol import Sandbox
from agent_server.tools.output import describe
from rollyard.messages import ToolSchema


class Bash:
    """A `Tool`. It needs the program bash in its sandbox."""

    schema = ToolSchema(
        name="bash",
        description=(
            "Run a command in a bash session. Working directory, variables and background "
            "processes are kept from one call to the next. There is no terminal: a program that "
            "asks for input gets none. Output that is too long is shortened in the middle."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command, of one or more lines."}
            },
            "required": ["command"],
        },
    )

    def __init__(self, *, deadline_seconds: float = 120.0, max_characters: int = 16_000) -> None:
        self._deadline_seconds = deadline_seconds
        self._max_characters = max_characters

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        result = sandbox.bash(arguments["command"], deadline_seconds=self._deadline_seconds)
        return describe(
            result, deadline_seconds=self._deadline_seconds, max_characters=self._max_characters
        )
