"""State of a node's LLM servers, as they report it."""

from collections.abc import Sequence

from llm_servers.server import LLMServer
from rollyard.errors import LLMUnavailable
from rollyard.messages import Message


class LLMServerState(Message, frozen=True, kw_only=True):
    """State of one LLM server."""

    url: str
    healthy: bool
    paused: bool = False
    """True if its generations are frozen, as during a weight update."""
    version: int | None = None
    """Its weight version; None if it does not answer, or was not labelled since it started."""


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
            url=server.url, healthy=True, paused=server.paused(), version=server.version()
        )
    except LLMUnavailable:
        return LLMServerState(url=server.url, healthy=False)


def common_version(states: Sequence[LLMServerState]) -> int | None:
    """The weight version of all servers that answer; None while they differ or are paused, and if
    none answers."""
    answering = [state for state in states if state.healthy]
    versions = {None if state.paused else state.version for state in answering}
    return versions.pop() if len(versions) == 1 else None


def why_silent(states: Sequence[LLMServerState]) -> str:
    """A sentence that names the servers that do not answer; empty if all do."""
    silent = [state.url for state in states if not state.healthy]
    return f"no answer from the LLM server at {' and at '.join(silent)}" if silent else ""
