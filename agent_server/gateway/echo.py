"""What counts as the same message when a client sends its conversation again.

A client keeps the conversation in words of its own: it takes an answer apart, and writes it anew
with its next request. Four things are lost or changed on the way without anybody's decision, so
that they make no other message:

- blanks around the text, which many clients strip;
- the ids of calls, as long as every result still answers the same call;
- the spelling of a call's arguments, which are the same JSON;
- reasoning that is left out, for which most clients have no place. What the policy reads of it
  later is for its chat template to decide.

Everything else makes another message, reasoning that is told otherwise included.
"""

from collections.abc import Sequence

import msgspec

from rollyard.messages import ChatMessage


class Echo(msgspec.Struct, frozen=True):
    """One message, as it is told from others."""

    said: tuple[object, ...]
    reasoning: str

    def same_as(self, other: "Echo") -> bool:
        return self.said == other.said and (
            self.reasoning == other.reasoning or not self.reasoning or not other.reasoning
        )


def echoes(messages: Sequence[ChatMessage]) -> list[Echo]:
    """The messages of a conversation from its beginning."""
    calls: dict[str, tuple[int, int]] = {}
    found = []
    for index, message in enumerate(messages):
        calls |= {call.call_id: (index, at) for at, call in enumerate(message.tool_calls)}
        answered = calls.get(message.tool_call_id, message.tool_call_id)
        found.append(_echo(message, answered))
    return found


def _echo(message: ChatMessage, answered: object) -> Echo:
    calls = tuple((call.name, call.arguments) for call in message.tool_calls)
    said = (message.role, message.content.strip(), calls, answered, message.images)
    return Echo(said, message.reasoning.strip())
