"""Python for an agent: one script a call, in the sandbox."""

from collections.abc import Mapping
from typing import Any

from agent_server.sandbox.protocol import Sandbox
from agent_server.tools.output import describe
from rollyard.messages import ToolSchema


class Python:
    """A `Tool`. It needs the program python3 in its sandbox."""

    schema = ToolSchema(
        name="python",
        description=(
            "Run a Python script and read what it prints. Each call is a new process: files are "
            "kept from one call to the next, variables are not."
        ),
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The script."}},
            "required": ["code"],
        },
    )

    def __init__(self, *, deadline_seconds: float = 60.0, max_characters: int = 16_000) -> None:
        self._deadline_seconds = deadline_seconds
        self._max_characters = max_characters

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        # On standard input: an argument has a largest length, and a file would stay behind.
        result = sandbox.run(
            ["python3", "-"], stdin=arguments["code"], deadline_seconds=self._deadline_seconds
        )
        return describe(
            result, deadline_seconds=self._deadline_seconds, max_characters=self._max_characters
        )
