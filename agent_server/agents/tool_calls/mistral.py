"""Calls of Mistral models behind `[TOOL_CALLS]`: a JSON list in their older tokenizers, and
`NAME[ARGS]{...}`, each behind a tag of its own, in the newer ones.

Their templates take ids of nine letters and digits alone. A call keeps the id that the policy gave
it, by which the answer reaches it.
"""

import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from agent_server.agents.tool_calls.json_calls import call_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

_TAG, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_FITTING_ID = re.compile(r"[A-Za-z0-9]{9}")


class Mistral:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = (_TAG,)

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        scanner = Scanner(text)
        while (said := scanner.before(_TAG)) is not None:
            yield said
            try:
                yield from _calls(scanner)
            except ToolError as error:
                yield error
                scanner.skip_to(_TAG)
        yield scanner.rest()

    def render(self, calls: Sequence[ToolCall]) -> str:
        written = [
            {"name": call.name, "arguments": call.arguments, "id": call.call_id} for call in calls
        ]
        return _TAG + json.dumps(written, ensure_ascii=False) if written else ""

    def matches(self, chat_template: str) -> bool:
        return _TAG in chat_template


def _calls(scanner: Scanner) -> list[FoundCall | ToolError]:
    """The calls behind one tag. Raises `ToolError` if none of them can be read."""
    if scanner.sees("[") or scanner.sees("{"):
        value = scanner.json()
        if value == []:
            raise ToolError(f"no tool call follows {_TAG!r}")
        return [_fitting(call_of(each)) for each in (value if isinstance(value, list) else [value])]
    name, _, call_id = scanner.until(_ARGUMENTS).partition(_ID)
    call = {"name": name.strip(), "arguments": scanner.json(), "id": call_id.strip()}
    return [_fitting(call_of(call))]


def _fitting(call: FoundCall | ToolError) -> FoundCall | ToolError:
    if isinstance(call, FoundCall) and not _FITTING_ID.fullmatch(call.call_id):
        return msgspec.structs.replace(call, call_id="")
    return call
