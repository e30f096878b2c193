"""The parser of one conversation's responses: reasoning, text and calls, from what was sampled.

- It takes any text. A call that cannot be read becomes a sentence for the policy.
- No two calls of a conversation have the same id. An id has nine letters and digits, which is what
  the strictest templates take, unless the policy wrote one itself.
- A response has at most `MAX_CALLS` calls, so that one response cannot keep the machine busy.
"""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from agent_server.agents.tool_calls.protocol import FoundCall, ToolCallFormat
from agent_server.agents.tool_calls.reasoning import split_reasoning
from agent_server.environments.protocol import Response
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

MAX_CALLS = 32
_MAX_NAME_CHARACTERS = 128
_MAX_DEPTH = 32
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class CallIds:
    """Owns the ids of the calls of one conversation, or of several."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers = itertools.count(1)

    def take(self, written: str) -> str:
        """The policy's own id, or a new one if that does not tell the calls apart."""
        if not _ID.fullmatch(written) or written in self._taken:
            new = (f"call{number:05}" for number in self._numbers)
            written = next(each for each in new if each not in self._taken)
        self._taken.add(written)
        return written


class ResponseParser:
    """Reads the responses of one conversation; the ids of their calls are taken from `ids`."""

    def __init__(
        self,
        tool_calls: ToolCallFormat,
        tools: Sequence[ToolSchema],
        ids: CallIds | None = None,
    ) -> None:
        self._format = tool_calls
        self._tools = tools
        self._ids = CallIds() if ids is None else ids

    def parse(self, text: str, *, in_reasoning: bool = False) -> Response:
        """The response with this text, which begins `in_reasoning` if its prompt opened some.
        Without tools the text is not searched for calls."""
        reasoning, rest = split_reasoning(text, opened=in_reasoning)
        content: list[str] = []
        calls: list[ToolCall] = []
        malformed: list[str] = []
        for part in self._format.find(rest, self._tools) if self._tools else [rest]:
            if isinstance(part, str):
                content.append(part)
                continue
            if len(calls) + len(malformed) == MAX_CALLS:
                malformed.append(
                    f"a response has at most {MAX_CALLS} tool calls; the rest are left out"
                )
                break
            try:
                calls.append(self._accept(part))
            except ToolError as error:
                malformed.append(str(error))
        return Response(
            text=text,
            content="".join(content).strip(),
            reasoning=reasoning,
            calls=tuple(calls),
            malformed=tuple(malformed),
        )

    def _accept(self, part: FoundCall | ToolError) -> ToolCall:
        """The call, with an id of its own. Raises `ToolError`."""
        if isinstance(part, ToolError):
            raise part
        if not part.name or len(part.name) > _MAX_NAME_CHARACTERS:
            raise ToolError(f"the name of a tool has 1 to {_MAX_NAME_CHARACTERS} characters")
        _check_value(part.name, 0)
        _check_value(part.arguments, 0)
        return ToolCall(
            call_id=self._ids.take(part.call_id), name=part.name, arguments=part.arguments
        )


def _check_value(value: Any, depth: int) -> None:
    """Raise `ToolError` for a value that could not cross a process in a message."""
    if depth > _MAX_DEPTH:
        raise ToolError(f"the arguments of a tool call are nested deeper than {_MAX_DEPTH}")
    match value:
        case str():
            if not _is_unicode(value):
                raise ToolError("the tool call has text that is not Unicode")
        case None | bool():
            pass
        case int():
            if not -(2**63) <= value < 2**64:
                raise ToolError("the tool call has a number of more than 64 bits")
        case float():
            if not math.isfinite(value):
                raise ToolError("the tool call has a number that is not finite")
        case list():
            for item in value:
                _check_value(item, depth + 1)
        case dict():
            for key, item in value.items():
                _check_value(key, depth + 1)
                _check_value(item, depth + 1)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
