"""The agent server's presence at the orchestrator: registration, heartbeats, farewell.

- One thread registers once everything here is ready, and then sends the heartbeats.
- A heartbeat carries every Lease of this server, running or with a Result on its way, and how many
  of its Slots are lent to others; a change of that is told at once. Its reply
  says which are lost, which should stand still, and so which should run; and which weights were
  published last.
- An orchestrator that is away is waited for; one that forgot this server is told again.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from rollyard.backoff import Backoff
from rollyard.errors import DeadlineExceeded, RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Farewell,
    Heartbeat,
    HeartbeatReply,
    Lease,
    LLMEndpoint,
    LostSlots,
    Registered,
)

log = structlog.get_logger()

_CALL_SECONDS = 5.0
_BETWEEN_BEATS_SECONDS = 0.25
"""The least time between two heartbeats: what changes often is told together."""


class PresenceSettings(msgspec.Struct, frozen=True, kw_only=True):
    ready_seconds: float = 300.0
    """Time for the LLM servers and the orchestrator to come up."""
    heartbeat_seconds: float = 2.0
    farewell_seconds: float = 1.0


class Workload(Protocol):
    """The Leases that run here, and the orders for them."""

    def leases(self) -> tuple[Lease, ...]: ...
    def lost(self) -> LostSlots: ...
    def lent(self) -> int: ...
    def cancel(self, lease: Lease) -> None: ...
    def park(self, lease: Lease, as_of: float) -> None: ...
    def resume(self, lease: Lease, as_of: float) -> None: ...


class LLMServers(Protocol):
    """The LLM servers that the Jobs here depend on."""

    def why_not_ready(self) -> str: ...
    def endpoints(self) -> tuple[LLMEndpoint, ...]: ...
    def learn(self, published: int) -> None: ...


class Presence:
    def __init__(
        self,
        orchestrator: Peer,
        myself: AgentServer,
        workload: Workload,
        unreported: Callable[[], Iterable[Lease]],
        llm_servers: LLMServers,
        settings: PresenceSettings,
    ) -> None:
        """`unreported` gives the Leases whose Results are on their way."""
        self._orchestrator = orchestrator
        self._myself = myself
        self._workload = workload
        self._unreported = unreported
        self._llm_servers = llm_servers
        self._settings = settings
        self._closed = threading.Event()
        self._due = threading.Event()
        """Set when a heartbeat is due before its time."""
        self.waiting_for = "starting"
        """What registration is waiting for; empty while this server is registered."""

    def start(self, on_failure: Callable[[RollyardError], None]) -> None:
        """Register and send heartbeats, in a thread; `on_failure` is called with the reason if this
        server cannot be registered."""
        threading.Thread(
            target=self._live, args=(on_failure,), name="presence", daemon=True
        ).start()

    def beat_soon(self) -> None:
        """Send the next heartbeat as soon as possible."""
        self._due.set()

    def close(self) -> None:
        self._closed.set()
        self._due.set()

    def leave(self) -> None:
        """Say goodbye, so that the Leases held here are queued again at once. A failure is logged:
        without heartbeats they are queued a little later."""
        farewell = Farewell(server_id=self._myself.server_id)
        try:
            self._orchestrator.post(
                "/servers/leave",
                farewell,
                Accepted,
                timeout_seconds=self._settings.farewell_seconds,
            )
        except RollyardError as error:
            log.warning("farewell_not_heard", reason=str(error))

    def _live(self, on_failure: Callable[[RollyardError], None]) -> None:
        try:
            self._arrive()
        except RollyardError as error:
            on_failure(error)
            return
        usual = self._settings.heartbeat_seconds
        least = min(_BETWEEN_BEATS_SECONDS, usual)
        while not self._closed.wait(least):
            self._due.wait(usual - least)
            self._due.clear()
            if self._closed.is_set():
                return
            try:
                self._beat()
            except RollyardError as error:
                log.warning("heartbeat_failed", reason=str(error))
            except Exception as error:  # without this thread all that runs here would be lost
                log.exception("heartbeat_failed", exc_info=error)

    def _go(self) -> None:
        """Leave because an operator drained this server, and stay away until the process is started
        again."""
        self.close()
        self.waiting_for = "an operator drained this server; restart it to register again"
        log.info("drained", server_id=self._myself.server_id)
        self.leave()

    def _arrive(self) -> None:
        """Register as soon as possible. Raises `DeadlineExceeded` or the orchestrator's refusal."""
        patience = Backoff(
            first_seconds=0.1, max_seconds=1.0, total_seconds=self._settings.ready_seconds
        )
        for delay in patience.delays():
            problem = self._llm_servers.why_not_ready()
            if not problem:
                try:
                    return self._register()
                except Unavailable as error:
                    problem = str(error)
            self.waiting_for = problem
            if self._closed.wait(delay):
                return None
        raise DeadlineExceeded(
            f"agent server {self._myself.server_id} is not ready after "
            f"{self._settings.ready_seconds:g} s: {self.waiting_for}"
        )

    def _register(self) -> None:
        myself = replace(self._myself, llm_servers=self._llm_servers.endpoints())
        answer = self._orchestrator.post(
            "/servers", myself, Registered, timeout_seconds=_CALL_SECONDS
        )
        self._llm_servers.learn(answer.published)
        self.waiting_for = ""
        if self._workload.lent():  # which a registration does not tell
            self.beat_soon()
        log.info("registered", server_id=self._myself.server_id, slots=self._myself.slots)

    def _beat(self) -> None:
        asked_at = time.monotonic()
        # The running Leases first: a Lease moves from there to those that are not reported yet.
        leases = tuple(dict.fromkeys((*self._workload.leases(), *self._unreported())))
        heartbeat = Heartbeat(
            server_id=self._myself.server_id,
            leases=leases,
            lost=self._workload.lost(),
            lent=self._workload.lent(),
        )
        reply = self._orchestrator.post(
            "/heartbeats", heartbeat, HeartbeatReply, timeout_seconds=_CALL_SECONDS
        )
        self._llm_servers.learn(reply.published)
        self._obey(heartbeat, reply, asked_at)
        if reply.drained:
            self._go()
        elif not reply.known:
            self.waiting_for = "the orchestrator forgot this server"
            self._register()

    def _obey(self, heartbeat: Heartbeat, reply: HeartbeatReply, asked_at: float) -> None:
        for lease in reply.stop:
            self._workload.cancel(lease)
        if not reply.known:
            return
        stop, parked = set(reply.stop), set(reply.parked)
        for lease in heartbeat.leases:
            if lease in parked:
                self._workload.park(lease, asked_at)
            elif lease not in stop:
                self._workload.resume(lease, asked_at)
