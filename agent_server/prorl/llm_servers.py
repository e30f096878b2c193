"""The LLM servers of the ProRL door: those that its callers bring, else the agent server's own.

Once a caller has brought one, the own ones are not used again: they may serve another model.
"""

import threading
import time

from agent_server.control.stop import StopSignal
from agent_server.llm import LLMClient, LLMSettings
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import LLMUnavailable
from rollyard.messages import check_url

_ASK_SECONDS = 1.0
"""Time for which servers that were not ready are not asked again."""


class BroughtLLMServers:
    """A `SharedPolicy`. Safe to share between threads."""

    def __init__(self, own: LLMClient) -> None:
        self._own = own
        self._brought = LLMClient(LLMSettings(servers=()))
        self._client = own
        self._asking = threading.Lock()
        self._ready = False
        self._reason = ""
        self._asked_at = 0.0

    def add(self, address: str) -> None:
        """Use the server at `address`, with or without the `/v1` of its other routes."""
        url = address.strip().rstrip("/").removesuffix("/v1")
        check_url(url)
        self._brought.add(url)
        self._change()

    def clear(self) -> None:
        self._brought.clear()
        self._change()

    def check(self) -> None:
        """Raise `LLMUnavailable` unless the servers have been ready since they last changed."""
        with self._asking:
            if not self._ready and time.monotonic() > self._asked_at + _ASK_SECONDS:
                self._reason = self._client.why_not_ready()
                self._ready, self._asked_at = not self._reason, time.monotonic()
            if not self._ready:
                raise LLMUnavailable(self._reason, fix="name one to /add_llm_server, or wait")

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        return self._client.generate(request, stop)

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that every server takes."""
        return self._client.context_tokens

    def release(self, trajectory: str) -> None:
        self._own.release(trajectory)
        self._brought.release(trajectory)

    def close(self) -> None:
        self._brought.close()

    def _change(self) -> None:
        with self._asking:
            self._client = self._brought
            self._ready, self._asked_at = False, 0.0
