"""What an LLM server is like before a weight update."""

from dataclasses import dataclass

from llm_servers.server import LLMServer
from rollyard.errors import LLMUnavailable

LOOK_SECONDS = 5.0
"""Time for a server to say what it serves."""


@dataclass(frozen=True, slots=True)
class ServerLook:
    server: LLMServer
    version: int | None = None
    """That of its weights; None if they have no label."""
    paused: bool | None = None
    """None if it did not answer."""
    silent: str = ""
    """The reason why it did not answer."""


def look_at(server: LLMServer) -> ServerLook:
    try:
        return ServerLook(server, server.version(LOOK_SECONDS), server.paused(LOOK_SECONDS))
    except LLMUnavailable as error:
        return ServerLook(server, silent=error.message)
