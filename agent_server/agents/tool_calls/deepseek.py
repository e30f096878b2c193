"""Calls of DeepSeek models, between special tokens: with the word `function` and the arguments in a
fenced block up to V3 and R1, and without them from V3.1 on."""

import json
from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.json_calls import call_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema


def _token(*words: str) -> str:
    """A special token of DeepSeek's: its bars are wide ones, and its blanks are not blank."""
    return f"<\uff5c{chr(0x2581).join(words)}\uff5c>"


_CALLS_BEGIN, _CALLS_END = _token("tool", "calls", "begin"), _token("tool", "calls", "end")
_CALL_BEGIN, _CALL_END = _token("tool", "call", "begin"), _token("tool", "call", "end")
_SEPARATOR = _token("tool", "sep")
_FENCE = "```"


class DeepSeek:
    """A `ToolCallFormat`."""

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        scanner = Scanner(text)
        while (said := scanner.before(_CALLS_BEGIN)) is not None:
            yield said
            if not scanner.sees(_CALL_BEGIN):
                yield ToolError(f"no {_CALL_BEGIN!r} follows {_CALLS_BEGIN!r}")
            while scanner.skips(_CALL_BEGIN):
                yield _call(scanner)
            scanner.skips(_CALLS_END)
        yield scanner.rest()

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"{_CALLS_BEGIN}{''.join(map(_rendered, calls))}{_CALLS_END}" if calls else ""

    def matches(self, chat_template: str) -> bool:
        return _CALLS_BEGIN in chat_template


def _call(scanner: Scanner) -> FoundCall | ToolError:
    try:
        name = scanner.until(_SEPARATOR)
        if scanner.sees("{"):
            arguments = scanner.json()
        else:
            name = scanner.until(_FENCE)
            scanner.skips("json")
            arguments = scanner.json()
            scanner.expect(_FENCE)
        scanner.expect(_CALL_END)
    except ToolError as error:
        scanner.skip_past(_CALL_END)
        return error
    return call_of({"name": name.strip(), "arguments": arguments})


def _rendered(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"{_CALL_BEGIN}{call.name}{_SEPARATOR}{arguments}{_CALL_END}"
