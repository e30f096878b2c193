"""Clients that rewrite their conversations: what they ask, and the traces of it, as text.

In a trace, `[...]` was sampled and is trained; a message is `|role: text;` and the assistant's turn
begins with `|a:`.
"""

import re
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.gateway.exchange import Inquiry
from agent_server.gateway.reading import ResponseReader
from agent_server.gateway.traces import Traces
from llm_servers.generation import Generation
from rollyard import messages
from rollyard.messages import ChatMessage, ToolSchema, WeightSpan
from tests.agent_server.test_chat_template import with_template

TERSE = (
    "{% if tools %}<|im_start|>{% for t in tools %}{{ t.function.name }},{% endfor %}<|im_end|>"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m.role[0] }}:{{ m.content }}"
    "{% for c in m.tool_calls or () %}{{ c.function.name }}{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>a:{% endif %}"
)
CALL = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'
_CALL = re.compile(r'<tool_call>\n\{"name": "(\w+)", "arguments": \{.*?\}\}\n</tool_call>')

Told = list[ChatMessage]
Item = ChatMessage | int | Callable[[Told], ChatMessage]
"""A message of a request; a number stands for the response of that number, as the client was told
it."""


class Ask(msgspec.Struct, frozen=True):
    """One request, and the responses to it."""

    items: list[Item]
    says: list[str]
    tools: tuple[ToolSchema, ...] = ()
    cut: bool = False
    """True if the responses end with their last token, and not with the one that ends a turn."""


class Recorded:
    """A client, and the traces of what it asks."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.traces = Traces(template)
        self.told: Told = []
        self.prompts: list[array[int]] = []
        self._reader = ResponseReader(template)
        self._sampled = 0

    def ask(self, ask: Ask) -> None:
        said = tuple(self._message(item) for item in ask.items)
        inquiry = Inquiry(messages=said, tools=ask.tools)
        place = self.traces.place(inquiry.messages, inquiry.tools)
        for text in ask.says:
            generation = self._generation(text, cut=ask.cut)
            message, choice = self._reader.read(inquiry, place.prompt(), generation)
            told = choice.told()
            self.traces.add(place, generation, message, told)
            self.told.append(told)
            self.prompts.append(place.prompt())

    def shown(self) -> list[str]:
        trajectory = self.traces.trajectory(truncated=False)
        return [self._shown(sequence) for sequence in trajectory.sequences]

    def _message(self, item: Item) -> ChatMessage:
        if isinstance(item, int):
            return self.told[item]
        return item if isinstance(item, ChatMessage) else item(self.told)

    def _generation(self, text: str, *, cut: bool) -> Generation:
        ids = self.template.encode(text)
        ids = ids if cut else [*ids, self.template.end_token_id]
        first, self._sampled = self._sampled, self._sampled + len(ids)
        return Generation(
            token_ids=tuple(ids),
            logprobs=tuple(-float(number) for number in range(first, self._sampled)),
            weight_spans=(WeightSpan(version=1, start=0, end=len(ids)),),
            finish_reason="length" if cut else "stop",
        )

    def _shown(self, sequence: messages.Sequence) -> str:
        shown, at = "", 0
        for turn in sequence.turns:
            given, sampled = sequence.token_ids[at : turn.start], slice(turn.start, turn.end)
            shown += f"{self._text(given)}[{self._text(sequence.token_ids[sampled])}]"
            at = turn.end
        assert at == len(sequence.token_ids), "tokens behind the last response"
        return shown

    def _text(self, token_ids: Sequence[int]) -> str:
        # A token of its own at the end keeps the template from leaving out the last one.
        text = self.template.text([*token_ids, self.template.end_token_id])
        text = _CALL.sub(r"\1", text)
        return text.replace("<|im_start|>", "|").replace("<|im_end|>", ";")


def terse(directory: Path) -> ChatTemplate:
    return ChatTemplate.load(with_template(directory, TERSE))


def call(name: str, arguments: str = "{}") -> str:
    """A call as the policy writes it."""
    return CALL.format(name, arguments)


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def system(text: str) -> ChatMessage:
    return ChatMessage(role="system", content=text)


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def result(text: str, number: int, at: int = 0) -> Callable[[Told], ChatMessage]:
    """The result of a call in the response of that number."""
    return lambda told: ChatMessage(
        role="tool", content=text, tool_call_id=told[number].tool_calls[at].call_id
    )


def changed(number: int, **fields: object) -> Callable[[Told], ChatMessage]:
    """The response of that number with other fields."""
    return lambda told: msgspec.structs.replace(told[number], **fields)


def with_ids(number: int, *ids: str) -> Callable[[Told], ChatMessage]:
    """The response of that number with other ids of its calls."""

    def renamed(told: Told) -> ChatMessage:
        calls = zip(told[number].tool_calls, ids, strict=True)
        return msgspec.structs.replace(
            told[number],
            tool_calls=tuple(msgspec.structs.replace(each, call_id=new) for each, new in calls),
        )

    return renamed


def with_arguments(number: int, arguments: dict[str, object]) -> Callable[[Told], ChatMessage]:
    """The response of that number with other arguments of its one call."""

    def replaced(told: Told) -> ChatMessage:
        (only,) = told[number].tool_calls
        calls = (msgspec.structs.replace(only, arguments=arguments),)
        return msgspec.structs.replace(told[number], tool_calls=calls)

    return replaced
