"""Finds the one tool call in a response."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class MalformedCall(Exception):
    """The response calls no tool properly: the policy's doing. The message is for the policy."""


def find_call(response: str) -> str | None:
    """What the response calls the tool with, or None when it calls none.

    Raises `MalformedCall` for anything between.
    """
    opened, closed = response.count(OPEN), response.count(CLOSE)
    if opened == closed == 0:
        return None
    if opened > 1 or closed > 1:
        raise MalformedCall("one tool call a response")
    before, _, rest = response.partition(OPEN)
    call, found, after = rest.partition(CLOSE)
    if not opened or not found:
        raise MalformedCall("the tool call is not closed" if opened else "no tool call was opened")
    if before.strip() or after.strip():
        raise MalformedCall("nothing may stand beside a tool call")
    if not call.strip():
        raise MalformedCall("the tool call is empty")
    return call.strip()
