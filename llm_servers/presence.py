"""Registration and heartbeats of this LLM node.

- Every heartbeat is a full registration: it says what the LLM servers serve, and is answered with
  what they should serve, so that an orchestrator or a Redis that lost its state learns it anew.
- An orchestrator that is away is waited for: at the start for a limited time, later for ever.
- The node says goodbye when it is closed, so that nobody waits for it. It says nothing after that.
"""

import threading
from collections.abc import Callable

import structlog

from rollyard.backoff import Backoff
from rollyard.errors import RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import Accepted, LLMFarewell, LLMNode, ToServe, WeightUpdate

log = structlog.get_logger()

HEARTBEAT_SECONDS = 2.0
_CALL_SECONDS = 5.0
_FAREWELL_SECONDS = 1.0


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
        self._one_at_a_time = threading.Lock()
        self._known_as = ""
        """Name of the node at the orchestrator; empty before it has registered."""
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
        """Leave. A goodbye that is not heard is logged: an operator may dismiss the node."""
        self._closed = True
        self._due.set()
        with self._one_at_a_time:
            if not self._known_as:
                return
            farewell = LLMFarewell(node_id=self._known_as)
            try:
                self._orchestrator.post(
                    "/llm-nodes/leave", farewell, Accepted, timeout_seconds=_FAREWELL_SECONDS
                )
            except RollyardError as error:
                log.warning("farewell_not_heard", reason=str(error))

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
        described = self._describe()
        with self._one_at_a_time:
            if self._closed:
                return
            told = self._orchestrator.post(
                "/llm-nodes", described, ToServe, timeout_seconds=_CALL_SECONDS
            )
            self._known_as = described.node_id
        self._obey(told.published)
