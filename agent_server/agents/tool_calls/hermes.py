"""Calls of Hermes and Qwen models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.json_calls import call_of, json_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.agents.tool_calls.tags import CLOSE, OPEN, calls_in_tags
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema


class Hermes:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (OPEN,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        return calls_in_tags(text, _call)

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"{OPEN}\n{json_of(call)}\n{CLOSE}" for call in calls)

    def matches(self, chat_template: str) -> bool:
        return OPEN in chat_template


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
