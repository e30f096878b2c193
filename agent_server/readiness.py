"""The readiness of the LLM servers, checked before any Job depends on them.

Each server is asked once for its context length and for the kind of logprobs that it reports, and
every time for its health.
"""

import sys
from collections.abc import Sequence

from llm_servers.server import LLMServer
from rollyard.errors import RollyardError

_CERTAIN = -1e-4
"""The logprob of a certain token is 0."""


class Readiness:
    """Readiness of all LLM servers together. Safe to share between threads."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = tuple(map(LLMServer, servers))
        self._context_tokens: dict[LLMServer, int] = {}
        """Context lengths of the servers whose logprobs are exact."""

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that every server takes."""
        return min(self._context_tokens.values(), default=sys.maxsize)

    def why_not_ready(self) -> str:
        """The reason why Jobs cannot depend on all LLM servers; empty if they can."""
        return next(filter(None, map(self._why_not, self._servers)), "")

    def close(self) -> None:
        for server in self._servers:
            server.close()

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
                self._context_tokens[server] = server.context_tokens()
        except RollyardError as error:
            return f"the LLM server does not answer a request: {error.message}"
        return ""
