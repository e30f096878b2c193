"""Calls that are written as JSON objects with a name and arguments."""

import json
from typing import Any

from agent_server.agents.tool_calls.protocol import FoundCall
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall


def call_of(value: Any) -> FoundCall | ToolError:
    """The call that a JSON object states, or the mistake in it. Its arguments may stand under
    `arguments` or `parameters`, also as a string of JSON."""
    if not isinstance(value, dict):
        return ToolError("a tool call must be a JSON object with name and arguments")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return ToolError("the tool call has no name")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = _decoded(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return ToolError(f"the arguments of {name[:64]!r} must be a JSON object")
    call_id = value.get("id")
    return FoundCall(name, arguments, call_id if isinstance(call_id, str) else "")


def json_of(call: ToolCall, arguments: str = "arguments") -> str:
    """The JSON object that states a call, with its arguments under the key `arguments`."""
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)


def _decoded(text: str) -> Any:
    try:
        return Scanner(text).json()
    except ToolError:
        return text
