"""The conversation so far, in the two ways in which it can be given to a chat template again."""

from collections.abc import Sequence

import msgspec

from agent_server.agents.tool_calls.protocol import ToolCallFormat
from agent_server.agents.tool_calls.reasoning import split_reasoning
from rollyard.messages import ChatMessage, ToolSchema


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a conversation."""

    messages: tuple[ChatMessage, ...]
    opening: int
    """Number of messages with which the environment began; the policy sampled the assistant's
    messages after them."""
    prompted: int
    """Number of messages of which the last prompt was made as a whole."""

    def as_text(self) -> list[ChatMessage]:
        """What was sampled is plain text, calls and reasoning included."""
        return [
            ChatMessage(role=message.role, content=message.content) if sampled else message
            for message, sampled in self._told()
        ]

    def apart(self, tool_calls: ToolCallFormat, tools: Sequence[ToolSchema]) -> list[ChatMessage]:
        """What was sampled has its calls and reasoning apart from its content."""
        return [
            _apart(message, tool_calls, tools) if sampled else message
            for message, sampled in self._told()
        ]

    def _told(self) -> list[tuple[ChatMessage, bool]]:
        """The messages, and whether the policy sampled each."""
        return [
            (message, index >= self.opening and message.role == "assistant")
            for index, message in enumerate(self.messages)
        ]


def _apart(
    message: ChatMessage, tool_calls: ToolCallFormat, tools: Sequence[ToolSchema]
) -> ChatMessage:
    content = message.content
    if message.reasoning:
        content = split_reasoning(content, opened=True)[1]
    if message.tool_calls:
        parts = tool_calls.find(content, tools)
        content = "".join(part for part in parts if isinstance(part, str)).strip()
    return msgspec.structs.replace(message, content=content)
