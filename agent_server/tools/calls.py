"""The one tool call in a response."""

from agent_server.tools.protocol import ToolError

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def find_call(response: str) -> str | None:
    """The argument of the response's tool call; None if it has none. Raises `ToolError` for
    anything between."""
    opened, closed = response.count(OPEN), response.count(CLOSE)
    if opened == closed == 0:
        return None
    if opened > 1 or closed > 1:
        raise ToolError("one tool call a response")
    before, _, rest = response.partition(OPEN)
    call, found, after = rest.partition(CLOSE)
    if not opened or not found:
        raise ToolError("the tool call is not closed" if opened else "no tool call was opened")
    if before.strip() or after.strip():
        raise ToolError("nothing may stand beside a tool call")
    if not call.strip():
        raise ToolError("the tool call is empty")
    return call.strip()
