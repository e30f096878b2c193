"""Calls of Hermes and Qwen models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.json_calls import call_of, json_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """A `ToolCallFormat`."""

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        scanner = Scanner(text)
        while (said := scanner.before(OPEN)) is not None:
            yield outside(said)
            yield _call(scanner)
        yield outside(scanner.rest())

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"{OPEN}\n{json_of(call)}\n{CLOSE}" for call in calls)

    def matches(self, chat_template: str) -> bool:
        return OPEN in chat_template


def outside(text: str) -> Part:
    """The text outside calls, which closes none."""
    return ToolError(f"{CLOSE!r} closes no tool call") if CLOSE in text else text


def _call(scanner: Scanner) -> FoundCall | ToolError:
    found: FoundCall | ToolError
    try:
        found = call_of(scanner.json())
        if isinstance(found, FoundCall):
            scanner.expect(CLOSE)
            return found
    except ToolError as error:
        found = error
    scanner.skip_past(CLOSE)
    return found
