"""Tools in a system message, for chat templates that leave the schemas out."""

import json
from collections.abc import Sequence

from agent_server.agents.tool_calls.protocol import ToolCallFormat
from rollyard.messages import ChatMessage, ToolCall, ToolSchema


def with_tools_told(
    messages: Sequence[ChatMessage], tools: Sequence[ToolSchema], tool_calls: ToolCallFormat
) -> list[ChatMessage]:
    """The messages, the first of which shows the schemas of the tools and an example of a call."""
    schemas = "\n".join(json.dumps(tool.as_function(), ensure_ascii=False) for tool in tools)
    arguments = dict.fromkeys(tools[0].parameters.get("properties", ()), "...")
    example = ToolCall(call_id="call00001", name=tools[0].name, arguments=arguments)
    told = (
        f"You can call these functions:\n{schemas}\n"
        f"Write a call like this:\n{tool_calls.render([example])}"
    )
    if messages and messages[0].role == "system":
        instruction, *messages = messages
        told = f"{instruction.content}\n\n{told}"
    return [ChatMessage(role="system", content=told), *messages]
