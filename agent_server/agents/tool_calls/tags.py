"""Calls that stand one by one in the tags of Hermes, whatever is written between them."""

from collections.abc import Callable, Iterator

from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.agents.tool_calls.scanner import Scanner
from agent_server.tools.protocol import ToolError

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def calls_in_tags(text: str, read: Callable[[Scanner], FoundCall | ToolError]) -> Iterator[Part]:
    """The parts of a text, as of a `ToolCallFormat`. `read` reads one call and the tag behind it,
    also where it finds a mistake."""
    scanner = Scanner(text)
    while (said := scanner.before(OPEN)) is not None:
        yield _outside(said)
        yield read(scanner)
    yield _outside(scanner.rest())


def _outside(text: str) -> Part:
    """The text outside calls, which closes none."""
    return ToolError(f"{CLOSE!r} closes no tool call") if CLOSE in text else text
