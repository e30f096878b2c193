"""The parts that dialects share, from texts and calls to the refusals of what cannot be kept."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agent_server.gateway.exchange import MAX_CHOICES
from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolCall, ToolSchema, check
from rollyard.messages.run import MAX_NESTED, nested_deeper

Part = dict[str, Any]
ToolChoice = str | Part | None
WAITING = b": waiting\n\n"
"""A comment, which clients read over."""
_FREE = ("auto", "none")


def new_id(kind: str) -> str:
    return f"{kind}{secrets.token_hex(12)}"


def text_of(content: str | Sequence[Part] | None, kinds: frozenset[str]) -> str:
    """The text of a message. Raises `InvalidMessage` for parts of other kinds, such as images."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        kind, text = part.get("type"), part.get("text")
        if not isinstance(kind, str) or kind not in kinds or not isinstance(text, str):
            raise InvalidMessage(
                f"a part of the type {str(kind)[:80]!r} cannot be shown to the policy",
                fix="send it as text",
            )
        texts.append(text)
    return "\n".join(texts)


def call_of(call_id: str, name: str, arguments: str | dict[str, Any]) -> ToolCall:
    """A call in an assistant's message, whose arguments may be JSON in a text."""
    what = f"the arguments of the call of {name!r}"
    if isinstance(arguments, str):
        try:
            arguments = codec.decode_json((arguments.strip() or "{}").encode(), dict[str, Any])
        except InvalidMessage as error:
            raise InvalidMessage(
                f"{what} are no JSON object: {error.message}", fix="send them as they were told"
            ) from error
    _check_nesting(arguments, what)
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def tool_of(name: str, description: str | None, parameters: dict[str, Any] | None) -> ToolSchema:
    _check_nesting(parameters, f"the parameters of the tool {name!r}")
    return ToolSchema(name=name, description=description or "", parameters=parameters or {})


def takes_calls(choice: ToolChoice) -> bool:
    """Whether a response is searched for calls. Raises `InvalidMessage` where some are required,
    which would take more than to let the policy speak."""
    chosen = choice.get("type") if isinstance(choice, dict) else choice
    check(
        chosen is None or chosen in _FREE,
        f"tool_choice {chosen!r} cannot be kept: the policy is free to call a tool or not",
        "use 'auto' or 'none'",
    )
    return chosen != "none"


def refuse_stops(stops: str | Sequence[str] | None) -> None:
    check(
        not stops,
        "texts that end a response cannot be kept: what was sampled is recorded as it is",
        "cut the response yourself",
    )


def check_tokens(most: int | None, what: str) -> None:
    check(most is None or most >= 1, f"{what} must be at least 1, got {most}")


def check_choices(number: int) -> None:
    check(1 <= number <= MAX_CHOICES, f"n must be in 1..{MAX_CHOICES}, got {number}")


def conversation_of(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages, with the name of the tool in each result. Raises `InvalidMessage` for those
    that ask for nothing."""
    names: dict[str, str] = {}
    conversation = []
    for message in messages:
        names |= {call.call_id: call.name for call in message.tool_calls}
        if message.role == "tool":
            name = names.get(message.tool_call_id, "")
            message = msgspec.structs.replace(message, name=name)
        conversation.append(message)
    check(len(conversation) > 0, "the conversation has no messages", "ask something")
    check(
        conversation[-1].role != "assistant",
        "the last message is the assistant's, and the policy does not go on with its own",
        "end with a message of the user or of a tool",
    )
    return tuple(conversation)


def event(data: Mapping[str, Any] | str, name: str = "") -> bytes:
    """One server-sent event."""
    content = data.encode() if isinstance(data, str) else codec.encode_json(data)
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + content + b"\n\n"


def _check_nesting(value: object, what: str) -> None:
    check(
        not nested_deeper(value, MAX_NESTED), f"{what} are nested deeper than {MAX_NESTED} levels"
    )
