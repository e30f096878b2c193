"""The tool with which a policy says that it is done."""

from collections.abc import Mapping
from typing import Any

from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ToolSchema


class Submit:
    """A `Tool` whose call ends the episode; its arguments are what the policy submits."""

    def __init__(
        self,
        name: str = "submit",
        description: str = "Submit your work and end the task.",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema = ToolSchema(
            name=name, description=description, parameters=dict(parameters or {})
        )

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        return "The task is over."
