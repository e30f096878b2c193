"""Stand-in conversations, by which a chat template shows what it puts around messages.

What a template does is never guessed from its source: it is given these messages, and its text is
looked at. Their texts are ones that no template writes by itself.
"""

from collections.abc import Iterator, Sequence

import msgspec

from agent_server.agents.message_form import MessageForm
from rollyard.messages import ChatMessage, ToolCall, ToolSchema

QUESTION = ChatMessage(role="user", content="stand-in question")
ANSWER = "stand-in answer"
OBSERVED = "stand-in observation"
REASONING = "stand-in reasoning"
INSTRUCTION = ChatMessage(role="system", content="stand-in instruction")
PLAIN_ANSWER = ChatMessage(role="assistant", content=ANSWER)
TOOL = ToolSchema(
    name="stand_in",
    description="A stand-in.",
    parameters={
        "type": "object",
        "properties": {"stand_in": {"type": "string", "description": "A stand-in."}},
        "required": ["stand_in"],
    },
)
FROM_TOOL = ChatMessage(role="tool", content=OBSERVED, tool_call_id="call_0", name=TOOL.name)
FROM_USER = ChatMessage(role="user", content=OBSERVED)


def answers(form: MessageForm, observation: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Assistant's messages that the observation may follow: those with the calls that it answers
    first, as a template may know only one call a message, or none."""
    calls = tuple(
        ToolCall(
            call_id=message.tool_call_id,
            name=message.name or TOOL.name,
            arguments={"stand_in": ANSWER},
        )
        for message in observation
        if message.role == "tool"
    )
    if form.takes_calls and calls:
        yield ChatMessage(role="assistant", content="", tool_calls=calls)
        yield ChatMessage(role="assistant", content="", tool_calls=calls[:1])
    yield PLAIN_ANSWER


def numbered(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages, with an id for every call that is answered without one: templates raise
    where there is none."""
    return [
        msgspec.structs.replace(message, tool_call_id=f"call_{index}")
        if message.role == "tool" and not message.tool_call_id
        else message
        for index, message in enumerate(messages)
    ]
