"""Calls of the demo's policy, `<tool_call>37*48</tool_call>`: the body is the only argument of the
only tool, and nothing stands beside the call."""

from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.tools.calls import CLOSE, OPEN, find_call
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema


class Bare:
    """A `ToolCallFormat` for environments with one tool that takes one string."""

    marks: Sequence[str] = (OPEN,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        try:
            body = find_call(text)
        except ToolError as error:
            yield error
            return
        if body is None:
            yield text
        else:
            yield _call(body, tools)

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "".join(
            f"{OPEN}{value}{CLOSE}" for call in calls for value in call.arguments.values()
        )

    def matches(self, chat_template: str) -> bool:
        return False  # no template mentions it


def _call(body: str, tools: Sequence[ToolSchema]) -> FoundCall | ToolError:
    if len(tools) == 1 and len(tools[0].parameters.get("properties", {})) == 1:
        (tool,) = tools
        (parameter,) = tool.parameters["properties"]
        return FoundCall(tool.name, {parameter: body})
    return ToolError("calls without a name are for one tool with one argument")
