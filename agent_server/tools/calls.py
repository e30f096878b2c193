"""The one tool call in a response."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class MalformedCall(Exception):
    """A mistake of the policy in calling the tool; the message is for the policy."""


def find_call(response: str) -> str | None:
    """The argument of the response's tool call; None if it has none. Raises `MalformedCall` for
    anything between."""
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
