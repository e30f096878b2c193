"""Arguments that are written as plain text, each in tags of its own.

The text does not say whether 7 is a number: a value is read as JSON where the tool's schema says
that it is not a string.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolSchema


def properties_of(name: str, tools: Sequence[ToolSchema]) -> Mapping[str, Any]:
    """Schemas of the arguments of the tool with this name; empty if there is none."""
    found = (tool.parameters.get("properties") for tool in tools if tool.name == name)
    properties = next(found, None)
    return properties if isinstance(properties, Mapping) else {}


def read_value(text: str, schema: Any) -> Any:
    """The value that the text stands for in an argument with this schema."""
    of_type = schema.get("type", "string") if isinstance(schema, Mapping) else "string"
    if of_type == "string" or (isinstance(of_type, list) and "string" in of_type):
        return text
    value = Scanner(text)
    try:
        read = value.json()
    except ToolError:
        return text
    return read if value.done else text


def write_value(value: Any) -> str:
    """The text that stands for a value."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
