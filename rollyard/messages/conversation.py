"""The conversation of a policy with its environment, as text and tool calls; the tokens are the
Trajectory's."""

from typing import Any

import msgspec

from rollyard.messages.base import Message


class ToolSchema(Message, frozen=True):
    """A tool as the policy is told of it, by the model's own chat template."""

    name: str
    description: str
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    """JSON Schema of the arguments, an object."""

    def as_function(self) -> dict[str, Any]:
        """The form that chat templates take."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


class ToolCall(Message, frozen=True):
    """One call of a tool by the policy."""

    call_id: str
    """Id by which a message of the role `tool` answers this call; unique in its conversation."""
    name: str
    arguments: dict[str, Any]


class ChatMessage(Message, frozen=True, omit_defaults=True):
    """One message of the conversation."""

    role: str
    content: str
    """Text. That of a sampled message is all that the policy wrote, its calls and reasoning
    included; an environment's examples of an assistant have these apart."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that were found in an assistant's message."""
    tool_call_id: str = ""
    """Id of the call that a message of the role `tool` answers; empty if that call could not be
    read."""
    name: str = ""
    """Name of the tool that speaks."""
    reasoning: str = ""
    """Part of an assistant's message that its template tells apart as reasoning."""
    images: tuple[str, ...] = ()
    """URLs or data URLs. They are kept for the trainer, and not shown to the policy."""
