"""Clients of the gateway's protocols, which keep their conversations as libraries do."""

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

Message = dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """The responses to one request."""

    choices: list[list[Message]]
    """Each in the messages or items that a client puts behind its conversation."""
    tokens: int
    """Number of tokens that were sampled, as the client is told it."""


class Dialect(Protocol):
    path: str

    def request(self, told: list[Message], options: Message) -> Message: ...

    def user(self, text: str) -> Message: ...

    def result(self, call_id: str, text: str) -> Message: ...

    def calls(self, message: Message) -> list[str]:
        """Ids of the calls in a message."""
        ...

    def answer(self, whole: Message) -> Answer: ...

    def streamed(self, events: list[Message]) -> Message:
        """The whole answer that these events tell."""
        ...


class ChatCompletions:
    path = "/v1/chat/completions"

    def request(self, told: list[Message], options: Message) -> Message:
        functions = [{"type": "function", "function": each} for each in options["tools"]]
        request = {"model": "m", "messages": told, "n": options["n"], "stream": options["stream"]}
        request |= {"max_tokens": options["max_tokens"], "logprobs": options["logprobs"]}
        return request | {"tools": functions, "stream_options": {"include_usage": True}}

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def result(self, call_id: str, text: str) -> Message:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def calls(self, message: Message) -> list[str]:
        return [call["id"] for call in message.get("tool_calls") or ()]

    def answer(self, whole: Message) -> Answer:
        choices = [[choice["message"]] for choice in whole["choices"]]
        return Answer(choices, whole["usage"]["completion_tokens"])

    def streamed(self, events: list[Message]) -> Message:
        choices: dict[int, Message] = {}
        for chunk in events:
            for choice in chunk["choices"]:
                message = choices.setdefault(choice["index"], {"content": ""})
                _extend(message, choice["delta"])
        told = [{"message": choices[index]} for index in sorted(choices)]
        return {"choices": told, "usage": events[-1]["usage"]}


class Responses:
    path = "/v1/responses"

    def request(self, told: list[Message], options: Message) -> Message:
        functions = [{"type": "function", **each} for each in options["tools"]]
        request = {"model": "m", "input": told, "stream": options["stream"], "tools": functions}
        return request | {"max_output_tokens": options["max_tokens"]}

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def result(self, call_id: str, text: str) -> Message:
        return {"type": "function_call_output", "call_id": call_id, "output": text}

    def calls(self, message: Message) -> list[str]:
        return [message["call_id"]] if message.get("type") == "function_call" else []

    def answer(self, whole: Message) -> Answer:
        return Answer([whole["output"]], whole["usage"]["output_tokens"])

    def streamed(self, events: list[Message]) -> Message:
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        whole: Message = events[-1]["response"]
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert done == whole["output"]
        return whole


class Messages:
    path = "/v1/messages"

    def request(self, told: list[Message], options: Message) -> Message:
        tools = [{"name": t["name"], "input_schema": t["parameters"]} for t in options["tools"]]
        request = {"model": "m", "messages": told, "stream": options["stream"], "tools": tools}
        thinking = {"type": "enabled", "budget_tokens": 1024}
        return request | {"max_tokens": options["max_tokens"], "thinking": thinking}

    def user(self, text: str) -> Message:
        return {"role": "user", "content": text}

    def result(self, call_id: str, text: str) -> Message:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return {"role": "user", "content": [block]}

    def calls(self, message: Message) -> list[str]:
        blocks = message["content"] if isinstance(message["content"], list) else ()
        return [block["id"] for block in blocks if block["type"] == "tool_use"]

    def answer(self, whole: Message) -> Answer:
        said = [{"role": "assistant", "content": whole["content"]}]
        return Answer([said], whole["usage"]["output_tokens"])

    def streamed(self, events: list[Message]) -> Message:
        blocks: list[Message] = []
        arguments = ""
        for each in events:
            match each["type"]:
                case "content_block_start":
                    assert each["index"] == len(blocks)
                    blocks.append(each["content_block"])
                    arguments = ""
                case "content_block_delta":
                    delta = {k: v for k, v in each["delta"].items() if k != "type"}
                    arguments += delta.pop("partial_json", "")
                    _extend(blocks[-1], delta)
                case "content_block_stop" if blocks[-1]["type"] == "tool_use":
                    blocks[-1]["input"] = msgspec.json.decode(arguments or "{}")
        return {"content": blocks, "usage": events[-2]["usage"]}


def events_of(stream: str) -> Iterator[Message]:
    """The data of server-sent events, but for the mark of their end."""
    for block in stream.split("\n\n"):
        lines = [line.removeprefix("data: ") for line in block.split("\n") if line[:5] == "data:"]
        if lines and lines != ["[DONE]"]:
            yield msgspec.json.decode("\n".join(lines))


def _extend(message: Message, delta: Message) -> None:
    """Put a piece of a message behind those that came before."""
    for name, piece in delta.items():
        if name == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for call in piece:
                if call["index"] == len(calls):
                    calls.append({"id": call["id"], "type": "function", "function": {}})
                _extend(calls[call["index"]]["function"], call.get("function", {}))
        elif isinstance(piece, str) and name != "role":
            message[name] = message.get(name, "") + piece
        else:
            message[name] = piece
