"""Calls of Llama 3 models: `{"name": ..., "parameters": {...}}` as the whole response or behind
`<|python_tag|>`; several are separated by semicolons."""

from collections.abc import Iterator, Sequence

from agent_server.agents.tool_calls.json_calls import call_of, json_of
from agent_server.agents.tool_calls.protocol import Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

_TAG = "<|python_tag|>"


class Llama3:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = ("{", _TAG)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        scanner = Scanner(text)
        if not _is_call(scanner):
            if (said := scanner.before(_TAG)) is None:
                yield text
                return
            yield said
        more = True
        while more:
            try:
                value = scanner.json()
            except ToolError as error:
                yield error
                return
            yield call_of(value)
            scanner.skips(";")
            more = not scanner.done

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(json_of(call, "parameters") for call in calls)

    def matches(self, chat_template: str) -> bool:
        # Functionary's templates have the tag too, for code.
        if "<function=" in chat_template:
            return False
        return _TAG in chat_template or '{"name": function name, "parameters"' in chat_template


def _is_call(scanner: Scanner) -> bool:
    """True if the response is meant as a call. An answer may be a JSON object, too."""
    return (
        scanner.sees("{")
        and '"name"' in scanner.text
        and ('"parameters"' in scanner.text or '"arguments"' in scanner.text)
    )
