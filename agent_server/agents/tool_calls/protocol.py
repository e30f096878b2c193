"""The promises of a tool-call format, by which the models of one family were trained.

- `find` takes any text. What cannot be read is one of its parts, a `ToolError`; it raises nothing.
- `find` gives back the calls that `render` wrote.
- A format keeps nothing between calls, and threads share it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema


class FoundCall(msgspec.Struct, frozen=True):
    """A call as the policy wrote it."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""
    """The policy's own id of the call; empty if it wrote none."""


Part = str | FoundCall | ToolError
"""A part of a response: plain text, a call, or the mistake in a call that cannot be read."""


class ToolCallFormat(Protocol):
    @property
    def marks(self) -> Sequence[str]:
        """Texts one of which begins every call: what stands before the first of them is plain text,
        and may be told while the rest is being sampled."""
        ...

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        """The parts of a text, in order, for a policy that was told of `tools`."""
        ...

    def render(self, calls: Sequence[ToolCall]) -> str:
        """The calls as the policy would write them."""
        ...

    def matches(self, chat_template: str) -> bool:
        """True if a chat template with this text has its model write calls in this format."""
        ...
