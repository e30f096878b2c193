"""State of a node's LLM servers, as they report it."""

from collections.abc import Sequence

from llm_servers.loading import adapter_in_force
from llm_servers.server import LLMServer
from rollyard.errors import LLMUnavailable
from rollyard.messages import LLMServerState, Message


class NodeState(Message, frozen=True, kw_only=True):
    node_id: str
    waiting_for: str
    """What the node waits for; empty once weights can be updated and tokens scored."""
    trouble: str
    """Reason why the servers cannot serve the published weights; empty if none is known."""
    servers: tuple[LLMServerState, ...]


def state_of(server: LLMServer) -> LLMServerState:
    if not server.healthy():
        return LLMServerState(url=server.url, healthy=False)
    try:
        return LLMServerState(
            url=server.url,
            healthy=True,
            paused=server.paused(),
            version=server.version(),
            adapter=adapter_in_force(server),
        )
    except LLMUnavailable:
        return LLMServerState(url=server.url, healthy=False)


def common_version(
    states: Sequence[LLMServerState], published: int, *, leaves_behind: bool = False
) -> int | None:
    """The weight version of all servers that are given requests; None while they differ or are
    paused, and if there is none. Servers that lack the `published` version while others have it are
    given none where an update `leaves_behind` those that fail."""
    answering = {None if each.paused else each.version for each in states if each.healthy}
    if leaves_behind and published in answering:
        return published
    return answering.pop() if len(answering) == 1 else None


def why_silent(states: Sequence[LLMServerState]) -> str:
    """A sentence that names the servers that do not answer; empty if all do."""
    silent = [state.url for state in states if not state.healthy]
    return f"no answer from the LLM server at {' and at '.join(silent)}" if silent else ""
