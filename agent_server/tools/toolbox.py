"""The tools of one environment, and the answers to a policy that calls them.

- Every call is answered by one message of the role `tool`, with the call's id and name. A call that
  could not be read has neither, and is answered too.
- What the policy did wrong is an answer. An exception means that a tool or the sandbox failed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agent_server.environments.protocol import Response
from agent_server.sandbox.protocol import Sandbox
from agent_server.tools.arguments import check_arguments, shown
from agent_server.tools.protocol import Tool, ToolError
from agent_server.tools.submit import Submit
from rollyard.messages import ChatMessage, ToolCall


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to the calls of one response."""

    messages: tuple[ChatMessage, ...] = ()
    """Answers in the order of the calls; none if the response has no call."""
    submitted: Mapping[str, Any] | None = None
    """Arguments of the call that ended the episode; None if none did."""


class Toolbox:
    """Owns the tools that an environment offers; it keeps nothing of an episode."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.schemas = tuple(tool.schema for tool in tools)
        """Schemas for the environment's `Opening`."""
        self._tools = {tool.schema.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            raise ValueError("two tools of one environment have the same name")

    def answer(self, response: Response, sandbox: Sandbox) -> Answers:
        """Carry out the response's calls, one after the other, up to one that submits."""
        messages: list[ChatMessage] = []
        for call in response.calls:
            try:
                tool = self._find(call)
                said = tool.call(call.arguments, sandbox)
            except ToolError as error:
                messages.append(_answer(call, f"error: {error}"))
                continue
            if isinstance(tool, Submit):
                return Answers(messages=tuple(messages), submitted=call.arguments)
            messages.append(_answer(call, said))
        messages.extend(_complaint(reason) for reason in response.malformed)
        return Answers(messages=tuple(messages))

    def _find(self, call: ToolCall) -> Tool:
        """The tool that is called. Raises `ToolError` also for arguments that it does not take."""
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise ToolError(f"there is no tool {shown(call.name)}; the tools are: {known}")
        check_arguments(call.arguments, tool.schema)
        return tool


def _answer(call: ToolCall, text: str) -> ChatMessage:
    return ChatMessage(role="tool", content=text, tool_call_id=call.call_id, name=call.name)


def _complaint(reason: str) -> ChatMessage:
    return ChatMessage(role="tool", content=f"error: {reason}")
