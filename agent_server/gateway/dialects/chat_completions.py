"""OpenAI's chat completions: `POST /v1/chat/completions`."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from agent_server.gateway.dialects.protocol import Asked, EventStream, TellsRest
from agent_server.gateway.dialects.wire import (
    WAITING,
    Part,
    ToolChoice,
    call_of,
    check_choices,
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
from rollyard.messages import ChatMessage, ToolCall, check

_TEXT = frozenset({"text", "refusal"})
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class Call(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction


class Said(msgspec.Struct, frozen=True):
    """One message of a request."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(msgspec.Struct, frozen=True):
    function: Function


class ChatStreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatCompletionRequest(msgspec.Struct, frozen=True):
    """A request, of which only what matters here is read."""

    messages: list[Said]
    model: str = ""
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: Part | None = None
    functions: list[Part] | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None


class ChatCompletions:
    """A `Dialect`."""

    def read(self, sent: bytes) -> Asked:
        request = codec.decode_json(sent, ChatCompletionRequest)
        _refuse(request)
        most = request.max_completion_tokens or request.max_tokens
        check_tokens(most, "max_tokens")
        choices = 1 if request.n is None else request.n
        check_choices(choices)
        tools = (tool.function for tool in request.tools or ())
        inquiry = Inquiry(
            messages=conversation_of(map(_message, request.messages)),
            tools=tuple(tool_of(t.name, t.description, t.parameters) for t in tools),
            calls=takes_calls(request.tool_choice),
            choices=choices,
            logprobs=bool(request.logprobs),
            max_tokens=most,
        )
        options = request.stream_options or ChatStreamOptions()
        return Asked(
            inquiry=inquiry,
            model=request.model,
            streams=bool(request.stream),
            counts=bool(options.include_usage),
        )

    def answer(self, asked: Asked, answer: Completion) -> bytes:
        choices = [
            {
                "index": index,
                "message": _told(choice),
                "logprobs": _logprobs(asked, choice),
                "finish_reason": _finish_reason(choice),
            }
            for index, choice in enumerate(answer.choices)
        ]
        whole = {**_head(asked, "chat.completion"), "choices": choices, "usage": _usage(answer)}
        return codec.encode_json(whole)

    def events(self, asked: Asked) -> EventStream:
        return Chunks(asked)

    def error(self, status: int, message: str, code: str) -> bytes:
        return codec.encode_json(openai_error(status, message, code))


class Chunks:
    """An `EventStream`."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._head = _head(asked, "chat.completion.chunk")
        self._told = TellsRest()

    def begin(self, prompt_tokens: int) -> bytes:
        begun = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(choice, begun) for choice in range(self._asked.inquiry.choices))

    def tell(self, choice: int, piece: Piece) -> bytes:
        self._told.tell(choice, piece)
        return self._chunk(choice, _said(piece))

    def wait(self) -> bytes:
        return WAITING

    def end(self, answer: Completion) -> bytes:
        events = [
            event
            for index, choice in enumerate(answer.choices)
            for event in self._rest(index, choice)
        ]
        if self._asked.counts:
            events.append(event({**self._head, "choices": [], "usage": _usage(answer)}))
        return b"".join([*events, event("[DONE]")])

    def fail(self, status: int, message: str, code: str) -> bytes:
        return event(openai_error(status, message, code)) + event("[DONE]")

    def _rest(self, index: int, choice: ToldResponse) -> Iterator[bytes]:
        """The rest of what is said, with the logprobs of all of it; the calls; and the end."""
        said = _said(self._told.rest(index, choice))
        logprobs = _logprobs(self._asked, choice)
        if said or logprobs:
            yield self._chunk(index, said, logprobs=logprobs)
        for number, call in enumerate(choice.calls):
            yield self._chunk(index, {"tool_calls": [{"index": number, **_call(call)}]})
        yield self._chunk(index, {}, finish_reason=_finish_reason(choice))

    def _chunk(self, choice: int, delta: Part, **end: object) -> bytes:
        told = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": None, **end}
        return event({**self._head, "choices": [told]})


def openai_error(status: int, message: str, code: str) -> dict[str, Any]:
    """An error in the form of all of OpenAI's routes."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _refuse(request: ChatCompletionRequest) -> None:
    """Raise `InvalidMessage` for what cannot be kept."""
    refuse_stops(request.stop)
    check(not request.functions, "functions are an older form of tools", "use tools")
    check(not request.top_logprobs, "only the sampled token has a logprob", "leave top_logprobs 0")
    form = (request.response_format or {}).get("type", "text")
    check(
        form == "text",
        f"response_format {form!r} cannot be kept: the policy samples freely",
        "ask for the form in the conversation",
    )


def _message(said: Said) -> ChatMessage:
    role = _ROLES.get(said.role)
    if role is None:
        raise InvalidMessage(
            f"there is no role {said.role!r}", fix=f"use one of: {', '.join(_ROLES)}"
        )
    calls = (
        call_of(call.id, call.function.name, call.function.arguments)
        for call in said.tool_calls or ()
    )
    return ChatMessage(
        role=role,
        content=text_of(said.content, _TEXT),
        tool_calls=tuple(calls),
        tool_call_id=said.tool_call_id or "",
        reasoning=said.reasoning_content or "",
    )


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    return {
        "id": new_id("chatcmpl-"),
        "object": kind,
        "created": int(time.time()),
        "model": asked.model,
    }


def _usage(answer: Completion) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.response_tokens,
        "total_tokens": answer.prompt_tokens + answer.response_tokens,
    }


def _told(choice: ToldResponse) -> dict[str, Any]:
    told: dict[str, Any] = {"role": "assistant", "content": choice.content, "refusal": None}
    if choice.reasoning:
        told["reasoning_content"] = choice.reasoning
    if choice.calls:
        told["content"] = choice.content or None
        told["tool_calls"] = [_call(call) for call in choice.calls]
    return told


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = codec.encode_json(call.arguments).decode()
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _logprobs(asked: Asked, choice: ToldResponse) -> dict[str, Any] | None:
    if not asked.inquiry.logprobs:
        return None
    content: list[Part] = [
        {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(choice.tokens, choice.logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _finish_reason(choice: ToldResponse) -> str:
    return "tool_calls" if choice.calls and choice.finish_reason == "stop" else choice.finish_reason


def _said(piece: Piece) -> Part:
    said = {"reasoning_content": piece.reasoning, "content": piece.content}
    return {name: text for name, text in said.items() if text}
