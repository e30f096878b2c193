"""Registration and heartbeats of this LLM node.

- Every heartbeat is a full registration: it says what the LLM servers serve, and is answered with
  what they should serve, so that an orchestrator or a Redis that lost its state learns it anew.
- An orchestrator that is away is waited for: at the start for a limited time, later for ever.
"""

import threading
from collections.abc import Callable

import structlog

from rollyard.backoff import Backoff
from rollyard.errors import RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import LLMNode, ToServe, WeightUpdate

log = structlog.get_logger()

HEARTBEAT_SECONDS = 2.0
_CALL_SECONDS = 5.0


class NodePresence:
    """The node's presence at the orchestrator. Call `arrive` first, then `start`."""

    def __init__(
        self,
        orchestrator: Peer,
        describe: Callable[[], LLMNode],
        obey: Callable[[WeightUpdate | None], None],
    ) -> None:
        self._orchestrator = orchestrator
        self._describe = describe
        self._obey = obey
        self._due = threading.Event()
        self._closed = False

    def arrive(self, ready_seconds: float) -> None:
        """Register. Raises `Unavailable` if that fails for `ready_seconds`."""
        delays = Backoff(max_seconds=2.0, total_seconds=ready_seconds).delays()
        while True:
            try:
                return self._beat()
            except Unavailable:
                delay = next(delays, None)
                if delay is None or self._pause(delay):
                    raise

    def start(self) -> None:
        threading.Thread(target=self._live, name="presence", daemon=True).start()

    def hurry(self) -> None:
        """Send the next heartbeat now, because what the servers serve has changed."""
        self._due.set()

    def close(self) -> None:
        self._closed = True
        self._due.set()

    def _live(self) -> None:
        while not self._pause(HEARTBEAT_SECONDS):
            try:
                self._beat()
            except RollyardError as error:
                log.warning("heartbeat_failed", reason=str(error))
            except Exception as error:  # without this thread no restarted server gets its weights
                log.exception("heartbeat_failed", exc_info=error)

    def _pause(self, seconds: float) -> bool:
        """Wait until the next heartbeat is due. Returns True if the presence was closed instead."""
        self._due.wait(seconds)
        self._due.clear()
        return self._closed

    def _beat(self) -> None:
        told = self._orchestrator.post(
            "/llm-nodes", self._describe(), ToServe, timeout_seconds=_CALL_SECONDS
        )
        self._obey(told.published)
