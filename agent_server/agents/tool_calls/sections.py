"""Calls that stand together in a section of the response, each between special tokens."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from agent_server.agents.tool_calls.json_calls import call_of
from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError

ReadCall = Callable[[Scanner], Mapping[str, Any]]
"""Reads what stands between the tokens of one call: its name, arguments, and id if it has one.
Raises `ToolError`."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The special tokens around a section, and around each of its calls."""

    begin: str
    end: str
    call_begin: str
    call_end: str

    def find(self, text: str, read: ReadCall) -> Iterator[Part]:
        """The parts of a text, as of a `ToolCallFormat`."""
        scanner = Scanner(text)
        while (said := scanner.before(self.begin)) is not None:
            yield said
            if not scanner.sees(self.call_begin):
                yield ToolError(f"no {self.call_begin!r} follows {self.begin!r}")
            while scanner.skips(self.call_begin):
                yield self._call(scanner, read)
            scanner.skips(self.end)
        yield scanner.rest()

    def _call(self, scanner: Scanner, read: ReadCall) -> FoundCall | ToolError:
        try:
            written = read(scanner)
            scanner.expect(self.call_end)
        except ToolError as error:
            scanner.skip_past(self.call_end)
            return error
        return call_of(written)

    def render(self, calls: Iterable[str]) -> str:
        """The section with these calls; empty if there is none."""
        written = "".join(f"{self.call_begin}{call}{self.call_end}" for call in calls)
        return f"{self.begin}{written}{self.end}" if written else ""
