"""Arguments that are written as plain text, each in tags of its own.

The text does not say whether 7 is a number: a value is read as JSON where the tool's schema says
that it is not a string. Some templates show their models the words of Python, as `True`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolSchema

_NULLS = ("null", "None")
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_TYPE_NAMES = {str: "string", type(None): "null"}


def properties_of(name: str, tools: Sequence[ToolSchema]) -> Mapping[str, Any]:
    """Schemas of the arguments of the tool with this name; empty if there is none."""
    found = (tool.parameters.get("properties") for tool in tools if tool.name == name)
    properties = next(found, None)
    return properties if isinstance(properties, Mapping) else {}


def read_value(text: str, schema: Any) -> Any:
    """The value that the text stands for in an argument with this schema."""
    types = _types(schema)
    if "null" in types and text in _NULLS:
        return None
    if "string" in types:
        return text
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    value = Scanner(text)
    try:
        read = value.json()
    except ToolError:
        return text
    return read if value.done else text


def _types(schema: Any) -> set[str]:
    """The types that the schema allows. One that does not say is for a string."""
    if not isinstance(schema, Mapping):
        return {"string"}
    stated = schema.get("type")
    if stated is not None:
        return {str(each) for each in (stated if isinstance(stated, list) else [stated])}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list) and choices:
            return set().union(*map(_types, choices))
    values = schema.get("enum", [schema.get("const", "")])
    if not isinstance(values, list):
        return {"string"}
    return {_TYPE_NAMES.get(type(value), "other") for value in values}


def write_value(value: Any) -> str:
    """The text that stands for a value."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
