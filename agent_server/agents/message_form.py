"""The form in which one chat template takes what is not plain text: calls, their ids and results.

Templates agree on `role` and `content`, and on little else. Which form one of them takes is tried
out when its model is loaded (see `template_traits`).
"""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import msgspec

from agent_server.agents.tokenizer import Tokenizer, Written
from rollyard.messages import ChatMessage, ToolCall, ToolSchema

_SHORT_ID = re.compile("[A-Za-z0-9]{9}")


class MessageForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of messages that one template takes."""

    lists_no_tools: bool = False
    """True if "no tools" is an empty list, for templates that go through it without a question."""
    content_in_parts: bool = False
    """True if content is a list of texts and images, False if it is text."""
    system_role: bool = True
    """False if a leading system message is to stand in the user's message after it."""
    tool_role: Literal["tool", "user"] = "tool"
    """Role of what tools say: `user` for a template that knows of no tools."""
    takes_calls: bool = True
    """True if an assistant's calls are given to the template apart from the content."""
    arguments_as_text: bool = False
    """True if a call's arguments are JSON text, False if they are an object."""
    content_of_calls: str | None = ""
    """Content of an assistant's message that has calls and no text."""
    short_ids: bool = False
    """True if the id of a call must have nine letters or digits."""

    def variants(self) -> "Iterator[MessageForm]":
        """Forms that differ in what a tool's message and the calls before it look like: those that
        say most come first."""
        for short, as_text, empty in product((False, True), (False, True), ("", None)):
            yield msgspec.structs.replace(
                self, short_ids=short, arguments_as_text=as_text, content_of_calls=empty
            )
        for short in (False, True):
            yield msgspec.structs.replace(self, takes_calls=False, short_ids=short)
        yield msgspec.structs.replace(self, takes_calls=False, tool_role="user")

    def written(self, messages: Sequence[ChatMessage]) -> list[Written]:
        """The messages as the template takes them."""
        fitting = messages if self.system_role else _without_system(messages)
        written = [self._written(message) for message in fitting]
        if self.tool_role == "user":
            written = _joined(written)
        return _in_parts(written) if self.content_in_parts else written

    def written_tools(self, tools: Sequence[ToolSchema]) -> list[Written] | None:
        if not tools:
            return [] if self.lists_no_tools else None
        return [tool.as_function() for tool in tools]

    def _written(self, message: ChatMessage) -> Written:
        written: Written = {"role": message.role, "content": message.content}
        if message.role == "tool":
            written["role"] = self.tool_role
            written["tool_call_id"] = self._id(message.tool_call_id)
        if message.name:
            written["name"] = message.name
        if message.reasoning:
            written["reasoning_content"] = message.reasoning
        if message.tool_calls:
            written["content"] = message.content or self.content_of_calls
            written["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return written

    def _call(self, call: ToolCall) -> Written:
        as_text = json.dumps(call.arguments, ensure_ascii=False)
        function = {
            "name": call.name,
            "arguments": as_text if self.arguments_as_text else call.arguments,
        }
        return {"id": self._id(call.call_id), "type": "function", "function": function}

    def _id(self, call_id: str) -> str:
        if not self.short_ids or _SHORT_ID.fullmatch(call_id):
            return call_id
        return f"{zlib.crc32(call_id.encode()) % 10**9:09d}"


class Renderer:
    """The chat template of one model, given messages in the form that it takes."""

    def __init__(self, tokenizer: Tokenizer, form: MessageForm) -> None:
        self._tokenizer = tokenizer
        self.form = form

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema] = (),
        *,
        generation_prompt: bool = True,
    ) -> str:
        """The text of the conversation. Raises `InvalidMessage`."""
        return self._tokenizer.render(
            self.form.written(messages),
            self.form.written_tools(tools),
            generation_prompt=generation_prompt,
        )


def _without_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    if not messages or messages[0].role != "system":
        return list(messages)
    system, *rest = messages
    if not rest or rest[0].role != "user":
        return [ChatMessage(role="user", content=system.content), *rest]
    both = f"{system.content}\n\n{rest[0].content}"
    return [ChatMessage(role="user", content=both), *rest[1:]]


def _in_parts(written: Sequence[Written]) -> list[Written]:
    return [
        {**message, "content": [{"type": "text", "text": message["content"] or ""}]}
        for message in written
    ]


def _joined(written: Sequence[Written]) -> list[Written]:
    """The messages with neighbours of the role `user` as one, for templates in which user and
    assistant must alternate."""
    joined: list[Written] = []
    for message in written:
        if joined and joined[-1]["role"] == message["role"] == "user":
            joined[-1]["content"] += f"\n\n{message['content']}"
        else:
            joined.append(dict(message))
    return joined
