"""Which LLM servers took far longer than others in a weight update.

Each of them keeps whoever waits for it: it is no part of updates with others, and is tried alone, a
minute after it was late.
"""

import time
from collections.abc import Callable, Collection, Sequence

from llm_servers.server import LLMServer

AGAIN_SECONDS = 60.0


class Lateness:
    """Owns when each server was late last. One that has its weights since is not late."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def remember(self, late: Collection[str], updated: Collection[str]) -> None:
        """These servers, by URL, were late in an update, and these have its weights."""
        self._since = {url: at for url, at in self._since.items() if url not in updated}
        self._since |= dict.fromkeys(late, self._clock())

    def among(self, servers: Sequence[LLMServer]) -> list[LLMServer]:
        """Those that others do not wait for."""
        return [server for server in servers if server.url in self._since]

    def due(self, servers: Sequence[LLMServer]) -> list[LLMServer]:
        """Those that were not late within the last `AGAIN_SECONDS`."""
        until = self._clock() - AGAIN_SECONDS
        return [server for server in servers if self._since.get(server.url, until) <= until]
