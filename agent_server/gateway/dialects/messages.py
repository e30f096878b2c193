"""Anthropic's messages: `POST /v1/messages`."""

from collections.abc import Iterator
from typing import Any

import msgspec

from agent_server.gateway.dialects.protocol import Asked, EventStream, TellsRest
from agent_server.gateway.dialects.wire import (
    Part,
    call_of,
    check_tokens,
    conversation_of,
    event,
    new_id,
    refuse_stops,
    takes_calls,
    text_of,
    tool_of,
)
from agent_server.gateway.exchange import Completion, Inquiry, Piece, ToldResponse
from rollyard import codec
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, ToolSchema, check

_TEXT = frozenset({"text"})
_ROLES = ("user", "assistant")
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Block(msgspec.Struct, frozen=True):
    """A part of a message, whose fields depend on its type."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list[Part] | None = None


class MessageParam(msgspec.Struct, frozen=True):
    """One message of a request."""

    role: str
    content: str | list[Block]


class ToolParam(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, of which only what matters here is read."""

    messages: list[MessageParam]
    system: str | list[Part] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: Part | None = None

    def inquiry(self, max_tokens: int | None = None) -> Inquiry:
        """The conversation as it is put to the policy."""
        system = text_of(self.system, _TEXT)
        told = [ChatMessage(role="system", content=system)] if system else []
        said = [message for each in self.messages for message in _messages(each)]
        return Inquiry(
            messages=conversation_of([*told, *said]),
            tools=tuple(map(_tool, self.tools or ())),
            calls=takes_calls(self.tool_choice),
            max_tokens=max_tokens,
        )


class MessagesRequest(CountRequest, frozen=True, kw_only=True):
    """A request for a response to it."""

    max_tokens: int
    model: str = ""
    stop_sequences: list[str] | None = None
    thinking: Part | None = None
    stream: bool | None = None


class AnthropicMessages:
    """A `Dialect`."""

    def read(self, sent: bytes) -> Asked:
        request = codec.decode_json(sent, MessagesRequest)
        refuse_stops(request.stop_sequences)
        check_tokens(request.max_tokens, "max_tokens")
        thinking = (request.thinking or {}).get("type", "disabled") != "disabled"
        return Asked(
            inquiry=request.inquiry(request.max_tokens),
            model=request.model,
            streams=bool(request.stream),
            reasons=thinking,
        )

    def counted(self, sent: bytes) -> Inquiry:
        """The conversation whose tokens are to be counted. Raises `InvalidMessage`."""
        return codec.decode_json(sent, CountRequest).inquiry()

    def answer(self, asked: Asked, answer: Completion) -> bytes:
        (choice,) = answer.choices
        blocks = list(_blocks(asked, choice))
        return codec.encode_json(_message(asked, answer, blocks, _stop_reason(choice)))

    def events(self, asked: Asked) -> EventStream:
        return MessageEvents(asked)

    def error(self, status: int, message: str, code: str) -> bytes:
        return codec.encode_json(_error(status, message))


class MessageEvents:
    """An `EventStream`. Its blocks come one after the other: thinking, text, and each call."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._told = TellsRest()
        self._blocks = 0
        """Blocks that have begun."""
        self._open = ""
        """Type of the last of them; empty if it has ended."""

    def begin(self, prompt_tokens: int) -> bytes:
        nothing = Completion(choices=(), prompt_tokens=prompt_tokens)
        return _event(
            {"type": "message_start", "message": _message(self._asked, nothing, [], None)}
        )

    def tell(self, choice: int, piece: Piece) -> bytes:
        self._told.tell(choice, piece)
        return b"".join(self._deltas(piece))

    def wait(self) -> bytes:
        return _event({"type": "ping"})

    def end(self, answer: Completion) -> bytes:
        (choice,) = answer.choices
        events = [*self._deltas(self._told.rest(0, choice)), *self._close()]
        for call in choice.calls:
            said = codec.encode_json(call.arguments).decode()
            block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
            events += self._begin(block)
            events.append(self._delta({"type": "input_json_delta", "partial_json": said}))
            events += self._close()
        delta = {"stop_reason": _stop_reason(choice), "stop_sequence": None}
        usage = {"output_tokens": answer.response_tokens}
        events.append(_event({"type": "message_delta", "delta": delta, "usage": usage}))
        return b"".join([*events, _event({"type": "message_stop"})])

    def fail(self, status: int, message: str, code: str) -> bytes:
        return _event(_error(status, message))

    def _deltas(self, piece: Piece) -> Iterator[bytes]:
        if piece.reasoning and self._asked.reasons:
            yield from self._begin({"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": piece.reasoning})
        if piece.content:
            yield from self._begin({"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": piece.content})

    def _begin(self, block: Part) -> Iterator[bytes]:
        """Begin a block, unless it is the one that is open."""
        if self._open == block["type"]:
            return
        yield from self._close()
        start = {"type": "content_block_start", "index": self._blocks, "content_block": block}
        self._open, self._blocks = block["type"], self._blocks + 1
        yield _event(start)

    def _delta(self, delta: Part) -> bytes:
        return _event({"type": "content_block_delta", "index": self._blocks - 1, "delta": delta})

    def _close(self) -> Iterator[bytes]:
        if self._open:
            self._open = ""
            yield _event({"type": "content_block_stop", "index": self._blocks - 1})


def _event(data: Part) -> bytes:
    return event(data, data["type"])


def _error(status: int, message: str) -> Part:
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _messages(said: MessageParam) -> Iterator[ChatMessage]:
    """The messages that one of Anthropic's is: what tools and the user say comes in one."""
    check(said.role in _ROLES, f"there is no role {said.role!r}", "use 'user' or 'assistant'")
    if isinstance(said.content, str):
        yield ChatMessage(role=said.role, content=said.content)
    elif said.role == "assistant":
        yield _assistant(said.content)
    else:
        yield from _results(said.content)
        texts = [block for block in said.content if block.type != "tool_result"]
        if texts or not said.content:
            yield ChatMessage(role="user", content=_text(texts))


def _results(blocks: list[Block]) -> Iterator[ChatMessage]:
    for block in blocks:
        if block.type == "tool_result":
            content = text_of(block.content, _TEXT)
            yield ChatMessage(role="tool", content=content, tool_call_id=block.tool_use_id)


def _assistant(blocks: list[Block]) -> ChatMessage:
    calls = (each for each in blocks if each.type == "tool_use")
    thoughts = (each.thinking for each in blocks if each.type == "thinking")
    others = ("tool_use", "thinking", "redacted_thinking")
    return ChatMessage(
        role="assistant",
        content=_text([each for each in blocks if each.type not in others]),
        tool_calls=tuple(call_of(call.id, call.name, call.input) for call in calls),
        reasoning="\n".join(thoughts),
    )


def _text(blocks: list[Block]) -> str:
    return text_of([{"type": block.type, "text": block.text} for block in blocks], _TEXT)


def _tool(tool: ToolParam) -> ToolSchema:
    if tool.input_schema is None:
        raise InvalidMessage(
            f"the tool {tool.name!r} of the type {tool.type!r} is run by nobody here",
            fix="give tools of your own, with an input_schema",
        )
    return tool_of(tool.name, tool.description, tool.input_schema)


def _message(
    asked: Asked, answer: Completion, blocks: list[Part], stop_reason: str | None
) -> dict[str, Any]:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": blocks,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.response_tokens},
    }


def _stop_reason(choice: ToldResponse) -> str:
    called = choice.calls and choice.finish_reason == "stop"
    return "tool_use" if called else _STOP_REASONS[choice.finish_reason]


def _blocks(asked: Asked, choice: ToldResponse) -> Iterator[Part]:
    if choice.reasoning and asked.reasons:
        yield {"type": "thinking", "thinking": choice.reasoning, "signature": ""}
    if choice.content:
        yield {"type": "text", "text": choice.content}
    for call in choice.calls:
        yield {
            "type": "tool_use",
            "id": call.call_id,
            "name": call.name,
            "input": call.arguments,
        }
