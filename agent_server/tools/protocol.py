"""The promises of a tool.

- A policy is told of it by its schema, and calls it with arguments that fit the schema.
- What the policy did wrong is a `ToolError`, which it gets to read. Any other exception means that
  the environment or this machine failed.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ToolSchema


class ToolError(Exception):
    """A mistake of the policy in calling a tool; the message is for the policy."""


class Tool(Protocol):
    schema: ToolSchema

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        """Carry out one call, and say what the policy is to read. Raises `ToolError`."""
        ...
