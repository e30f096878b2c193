"""How the LLM servers of a node do, as they say themselves."""

from collections.abc import Sequence

from llm_servers.server import LLMServer
from rollyard.errors import LLMUnavailable
from rollyard.messages import Message


class LLMServerState(Message, frozen=True, kw_only=True):
    """What one LLM server says of itself; `version` is None where it does not answer, or has no
    version since it started."""

    url: str
    healthy: bool
    paused: bool = False
    version: int | None = None


class NodeState(Message, frozen=True, kw_only=True):
    node_id: str
    waiting_for: str
    """Empty once weights can be updated and tokens scored."""
    trouble: str
    """Why the servers cannot serve what was published; empty when nothing is known to be wrong."""
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
    """What every server that answers serves; None while they differ or stand still, and when none
    answers."""
    answering = [state for state in states if state.healthy]
    versions = {None if state.paused else state.version for state in answering}
    return versions.pop() if len(versions) == 1 else None


def why_silent(states: Sequence[LLMServerState]) -> str:
    """Which servers do not answer; empty when all do."""
    silent = [state.url for state in states if not state.healthy]
    return f"no answer from the LLM server at {' and at '.join(silent)}" if silent else ""
