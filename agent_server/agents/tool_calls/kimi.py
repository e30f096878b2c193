"""Calls of Kimi models, between special tokens; a call is known by its id, `functions.NAME:0`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_server.agents.tool_calls.protocol import Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.agents.tool_calls.sections import Section
from rollyard.messages import ToolCall, ToolSchema

_SECTION = Section(
    begin="<|tool_calls_section_begin|>",
    end="<|tool_calls_section_end|>",
    call_begin="<|tool_call_begin|>",
    call_end="<|tool_call_end|>",
)
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NUMBER = re.compile(r":[0-9]+$")


class Kimi:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (_SECTION.begin,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        return _SECTION.find(text, _read)

    def render(self, calls: Sequence[ToolCall]) -> str:
        return _SECTION.render(_rendered(call, number) for number, call in enumerate(calls))

    def matches(self, chat_template: str) -> bool:
        return _SECTION.begin in chat_template


def _read(scanner: Scanner) -> Mapping[str, Any]:
    call_id = scanner.until(_ARGUMENTS).strip()
    name = _NUMBER.sub("", call_id).removeprefix("functions.")
    return {"name": name, "arguments": scanner.json(), "id": call_id}


def _rendered(call: ToolCall, number: int) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"functions.{call.name}:{number}{_ARGUMENTS}{arguments}"
