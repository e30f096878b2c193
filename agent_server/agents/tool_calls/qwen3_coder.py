"""Calls of Qwen3-Coder models: `<function=NAME>` with a `<parameter=NAME>` for each argument."""

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

_END_OF_CALL = re.compile(r"</function>\s*</tool_call>")
# A value may itself spell the tag that closes it, as in a file about tool calls.
_END_OF_VALUE = re.compile(r"</parameter>\s*(?=<parameter=|\Z)")


class Qwen3Coder:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (OPEN,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        return calls_in_tags(text, partial(_call, tools))

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(_rendered, calls))

    def matches(self, chat_template: str) -> bool:
        return all(tag in chat_template for tag in (OPEN, "<function=", "<parameter="))


def _call(tools: Sequence[ToolSchema], scanner: Scanner) -> FoundCall | ToolError:
    end = _END_OF_CALL.search(scanner.text, scanner.position)
    if end is None:
        scanner.skip_past(CLOSE)
        return ToolError(f"the tool call does not end with '</function>' and {CLOSE!r}")
    body = Scanner(scanner.text[scanner.position : end.start()])
    scanner.position = end.end()
    try:
        body.expect("<function=")
        name = body.until(">")
        return FoundCall(name, dict(_arguments(body, properties_of(name, tools))))
    except ToolError as error:
        return error


def _arguments(body: Scanner, properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    while not body.done:
        body.expect("<parameter=")
        name = body.until(">")
        end = _END_OF_VALUE.search(body.text, body.position)
        if end is None:
            raise ToolError(f"the parameter {name[:64]!r} does not end with '</parameter>'")
        text = body.text[body.position : end.start()].removeprefix("\n").removesuffix("\n")
        body.position = end.end()
        yield name, read_value(text, properties.get(name))


def _rendered(call: ToolCall) -> str:
    parameters = (
        f"<parameter={name}>\n{write_value(value)}\n</parameter>\n"
        for name, value in call.arguments.items()
    )
    return f"{OPEN}\n<function={call.name}>\n{''.join(parameters)}</function>\n{CLOSE}"
