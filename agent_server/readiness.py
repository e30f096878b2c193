"""The readiness of the LLM servers, checked before any Job depends on them.

Each server is asked once what it is and for its context length, and every time for its health.
Servers come and go.
"""

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from agent_server.control.stop import StopSignal
from agent_server.endpoints import Endpoints
from llm_servers.server import LLMServer
from rollyard.errors import InvalidMessage, RollyardError


class Readiness:
    """Readiness of all LLM servers together. Safe to share between threads."""

    def __init__(
        self,
        servers: Sequence[str],
        endpoints: Endpoints,
        tokens: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`tokens` has the token that is shown to a server, by its URL; it may grow."""
        self._endpoints = endpoints
        self._tokens = tokens
        self._lock = threading.Lock()
        self._servers: dict[str, LLMServer] = {}
        self._context_tokens: dict[LLMServer, int] = {}
        """Context lengths of the servers that can be used."""
        self._last_context_tokens = sys.maxsize
        """What the servers took that were cleared."""
        for url in servers:
            self.add(url)

    def add(self, url: str) -> None:
        """Check this server, too; one that is checked already is not asked again."""
        with self._lock:
            if url not in self._servers:
                self._servers[url] = LLMServer(url, self._tokens.get(url, ""))

    def keep(self, urls: Collection[str]) -> None:
        """Check none but these any more, of those that are checked."""
        with self._lock:
            self._last_context_tokens = self.context_tokens
            others = {url: self._servers.pop(url) for url in set(self._servers).difference(urls)}
            for server in others.values():
                self._context_tokens.pop(server, None)
        for url, server in others.items():
            self._endpoints.forget(url)
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
            servers = dict(self._servers)
        if not servers:
            return "there are no LLM servers"
        return next(filter(None, (self._why_not(url, servers[url]) for url in servers)), "")

    def close(self) -> None:
        self.keep(())

    def _why_not(self, url: str, server: LLMServer) -> str:
        if problem := server.why_unhealthy():
            self._endpoints.forget(url)
            return problem
        try:
            endpoint = self._endpoints.of(url, StopSignal())
            if problem := endpoint.why_not_used:
                self._endpoints.forget(url)
                return problem
            if server not in self._context_tokens:
                self._note(server, _context_tokens(server))
        except RollyardError as error:
            return f"the LLM server does not answer a request: {error.message}"
        return ""

    def _note(self, server: LLMServer, context_tokens: int) -> None:
        with self._lock:
            if server in self._servers.values():  # else it was cleared meanwhile
                self._context_tokens[server] = context_tokens


def _context_tokens(server: LLMServer) -> int:
    try:
        return server.context_tokens()
    except InvalidMessage:
        return sys.maxsize  # a server that does not tell: it refuses what is too long
