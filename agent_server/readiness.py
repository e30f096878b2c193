"""The readiness of the LLM servers, checked before any Job depends on them.

Each server is asked once for its context length and for the kind of logprobs that it reports, and
every time for its health. Servers come and go.
"""

import sys
import threading
from collections.abc import Sequence

from llm_servers.server import LLMServer
from rollyard.errors import RollyardError

_CERTAIN = -1e-4
"""The logprob of a certain token is 0."""


class Readiness:
    """Readiness of all LLM servers together. Safe to share between threads."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._servers: dict[str, LLMServer] = {}
        self._context_tokens: dict[LLMServer, int] = {}
        """Context lengths of the servers whose logprobs are exact."""
        self._last_context_tokens = sys.maxsize
        """What the servers took that were cleared."""
        for url in servers:
            self.add(url)

    def add(self, url: str) -> None:
        """Check this server, too; one that is checked already is not asked again."""
        with self._lock:
            if url not in self._servers:
                self._servers[url] = LLMServer(url)

    def clear(self) -> None:
        """Check none of the servers any more."""
        with self._lock:
            self._last_context_tokens = self.context_tokens
            cleared = tuple(self._servers.values())
            self._servers.clear()
            self._context_tokens.clear()
        for server in cleared:
            server.close()

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that every server takes. While no
        server has told, those that were cleared speak for their successors."""
        told = tuple(self._context_tokens.values())
        return min(told, default=self._last_context_tokens)

    def why_not_ready(self) -> str:
        """The reason why Jobs cannot depend on all LLM servers; empty if they can."""
        with self._lock:
            servers = tuple(self._servers.values())
        if not servers:
            return "there are no LLM servers"
        return next(filter(None, map(self._why_not, servers)), "")

    def close(self) -> None:
        self.clear()

    def _why_not(self, server: LLMServer) -> str:
        if problem := server.why_unhealthy():
            return problem
        try:
            if server not in self._context_tokens:
                if min(server.logprobs_of_certain_tokens(), default=_CERTAIN) <= _CERTAIN:
                    return (
                        f"the LLM server at {server.url} reports logprobs of another distribution "
                        "than the one it samples from: start it with --logprobs-mode "
                        "processed_logprobs"
                    )
                self._note(server, server.context_tokens())
        except RollyardError as error:
            return f"the LLM server does not answer a request: {error.message}"
        return ""

    def _note(self, server: LLMServer, context_tokens: int) -> None:
        with self._lock:
            if server in self._servers.values():  # else it was cleared meanwhile
                self._context_tokens[server] = context_tokens
