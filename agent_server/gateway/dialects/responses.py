"""OpenAI's responses: `POST /v1/responses`."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from agent_server.gateway.dialects.chat_completions import openai_error
from agent_server.gateway.dialects.protocol import Asked, EventStream
from agent_server.gateway.dialects.response_events import ResponseEvents, items_of, response_of
from agent_server.gateway.dialects.wire import (
    Part,
    ToolChoice,
    call_of,
    check_tokens,
    conversation_of,
    takes_calls,
    text_of,
    tool_of,
)
from agent_server.gateway.exchange import Completion, Inquiry
from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolSchema, check

_TEXT = frozenset({"input_text", "output_text", "text", "refusal"})
_THOUGHT = frozenset({"reasoning_text", "text"})
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Item(msgspec.Struct, frozen=True):
    """One item of a conversation, whose fields depend on its type."""

    type: str = "message"
    role: str = ""
    content: str | list[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[Part] = ""

    @property
    def speaker(self) -> str:
        """Role of the message that the item is a part of."""
        match self.type:
            case "function_call" | "reasoning":
                return "assistant"
            case "function_call_output":
                return "tool"
            case "message" if self.role in _ROLES:
                return _ROLES[self.role]
            case "message":
                known = ", ".join(_ROLES)
                raise InvalidMessage(f"there is no role {self.role!r}", fix=f"use one of: {known}")
        raise InvalidMessage(
            f"an item of the type {self.type!r} cannot be shown to the policy",
            fix="give messages, function calls and their outputs",
        )


class ResponsesTool(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    """A request, of which only what matters here is read."""

    input: str | list[Item]
    model: str = ""
    instructions: str | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: ToolChoice = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    conversation: str | Part | None = None
    background: bool | None = None
    text: Part | None = None
    stream: bool | None = None


class OpenAIResponses:
    """A `Dialect`."""

    def read(self, sent: bytes) -> Asked:
        request = codec.decode_json(sent, ResponsesRequest)
        _refuse(request)
        check_tokens(request.max_output_tokens, "max_output_tokens")
        told = []
        if request.instructions:
            told.append(ChatMessage(role="system", content=request.instructions))
        inquiry = Inquiry(
            messages=conversation_of([*told, *_messages(request.input)]),
            tools=tuple(map(_tool, request.tools or ())),
            calls=takes_calls(request.tool_choice),
            max_tokens=request.max_output_tokens,
        )
        return Asked(inquiry=inquiry, model=request.model, streams=bool(request.stream))

    def answer(self, asked: Asked, answer: Completion) -> bytes:
        (choice,) = answer.choices
        return codec.encode_json(response_of(asked, answer, items_of(choice)))

    def events(self, asked: Asked) -> EventStream:
        return ResponseEvents(asked)

    def error(self, status: int, message: str, code: str) -> bytes:
        return codec.encode_json(openai_error(status, message, code))


def _refuse(request: ResponsesRequest) -> None:
    """Raise `InvalidMessage` for what cannot be kept."""
    kept = request.previous_response_id or request.conversation
    check(not kept, "no conversation is kept between requests", "send all of it in input")
    check(not request.background, "no response is made in the background", "wait for it")
    asked = (request.text or {}).get("format") or {}
    form = asked.get("type", "text") if isinstance(asked, dict) else asked
    check(
        form == "text",
        f"the format {form!r} cannot be kept: the policy samples freely",
        "ask for the form in the conversation",
    )


def _messages(told: str | Sequence[Item]) -> Iterator[ChatMessage]:
    """The messages: what an assistant thinks, says and calls in a row is one of them."""
    if isinstance(told, str):
        yield ChatMessage(role="user", content=told)
        return
    for role, together in groupby(told, key=lambda item: item.speaker):
        if role == "assistant":
            yield _assistant(list(together))
            continue
        for item in together:
            shown = item.output if role == "tool" else item.content
            content = text_of(shown, _TEXT)
            yield ChatMessage(role=role, content=content, tool_call_id=item.call_id)


def _assistant(items: Sequence[Item]) -> ChatMessage:
    calls = (item for item in items if item.type == "function_call")
    texts = (text_of(item.content, _TEXT) for item in items if item.type == "message")
    thoughts = (text_of(item.content, _THOUGHT) for item in items if item.type == "reasoning")
    return ChatMessage(
        role="assistant",
        content="\n".join(texts),
        tool_calls=tuple(call_of(call.call_id, call.name, call.arguments) for call in calls),
        reasoning="\n".join(thoughts),
    )


def _tool(tool: ResponsesTool) -> ToolSchema:
    check(
        tool.type == "function",
        f"a tool of the type {tool.type!r} is run by nobody here",
        "give functions of your own",
    )
    return tool_of(tool.name, tool.description, tool.parameters)
