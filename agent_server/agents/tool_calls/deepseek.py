"""Calls of DeepSeek models, between special tokens: with the word `function` and the arguments in a
fenced block up to V3 and R1, and without them from V3.1 on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_server.agents.tool_calls.protocol import Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.agents.tool_calls.sections import Section
from rollyard.messages import ToolCall, ToolSchema


def _token(*words: str) -> str:
    """A special token of DeepSeek's: its bars are wide ones, and its blanks are not blank."""
    return f"<\uff5c{chr(0x2581).join(words)}\uff5c>"


_SECTION = Section(
    begin=_token("tool", "calls", "begin"),
    end=_token("tool", "calls", "end"),
    call_begin=_token("tool", "call", "begin"),
    call_end=_token("tool", "call", "end"),
)
_SEPARATOR = _token("tool", "sep")
_FENCE = "```"


class DeepSeek:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (_SECTION.begin,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        return _SECTION.find(text, _read)

    def render(self, calls: Sequence[ToolCall]) -> str:
        return _SECTION.render(map(_rendered, calls))

    def matches(self, chat_template: str) -> bool:
        return _SECTION.begin in chat_template


def _read(scanner: Scanner) -> Mapping[str, Any]:
    name = scanner.until(_SEPARATOR)
    if scanner.sees("{"):
        arguments = scanner.json()
    else:
        name = scanner.until(_FENCE)
        scanner.skips("json")
        arguments = scanner.json()
        scanner.expect(_FENCE)
    return {"name": name.strip(), "arguments": arguments}


def _rendered(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"{call.name}{_SEPARATOR}{arguments}"
