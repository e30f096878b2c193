"""Calls of Kimi models, between special tokens; a call is known by its id, `functions.NAME:0`."""

import json
import re
from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.json_calls import call_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

_CALLS_BEGIN, _CALLS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL_BEGIN, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NUMBER = re.compile(r":[0-9]+$")


class Kimi:
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
        written = "".join(_rendered(call, number) for number, call in enumerate(calls))
        return f"{_CALLS_BEGIN}{written}{_CALLS_END}" if calls else ""

    def matches(self, chat_template: str) -> bool:
        return _CALLS_BEGIN in chat_template


def _call(scanner: Scanner) -> FoundCall | ToolError:
    try:
        call_id = scanner.until(_ARGUMENTS).strip()
        arguments = scanner.json()
        scanner.expect(_CALL_END)
    except ToolError as error:
        scanner.skip_past(_CALL_END)
        return error
    name = _NUMBER.sub("", call_id).removeprefix("functions.")
    return call_of({"name": name, "arguments": arguments, "id": call_id})


def _rendered(call: ToolCall, number: int) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"{_CALL_BEGIN}functions.{call.name}:{number}{_ARGUMENTS}{arguments}{_CALL_END}"
