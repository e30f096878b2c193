"""Calls of GLM models: the name, then an `<arg_key>` and an `<arg_value>` for each argument."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.agents.tool_calls.tags import CLOSE, OPEN, calls_in_tags
from agent_server.agents.tool_calls.text_values import properties_of, read_value, write_value
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

_KEY = "<arg_key>"
_NAME = re.compile(r"[^<]*")
# A value may itself spell the tag that closes it.
_END_OF_VALUE = re.compile(r"</arg_value>\s*(?=<arg_key>|</tool_call>)")


class GLM:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (OPEN,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        return calls_in_tags(text, partial(_call, tools))

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(_rendered, calls))

    def matches(self, chat_template: str) -> bool:
        return OPEN in chat_template and _KEY in chat_template


def _call(tools: Sequence[ToolSchema], scanner: Scanner) -> FoundCall | ToolError:
    try:
        name = scanner.take(_NAME).strip()
        arguments = dict(_arguments(scanner, properties_of(name, tools)))
        scanner.expect(CLOSE)
    except ToolError as error:
        scanner.skip_past(CLOSE)
        return error
    return FoundCall(name, arguments)


def _arguments(scanner: Scanner, properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    while scanner.skips(_KEY):
        name = scanner.until("</arg_key>").strip()
        scanner.expect("<arg_value>")
        end = _END_OF_VALUE.search(scanner.text, scanner.position)
        if end is None:
            raise ToolError(f"the argument {name[:64]!r} does not end with '</arg_value>'")
        text = scanner.text[scanner.position : end.start()]
        scanner.position = end.end()
        yield name, read_value(text, properties.get(name))


def _rendered(call: ToolCall) -> str:
    arguments = (
        f"{_KEY}{name}</arg_key>\n<arg_value>{write_value(value)}</arg_value>\n"
        for name, value in call.arguments.items()
    )
    return f"{OPEN}{call.name}\n{''.join(arguments)}{CLOSE}"
