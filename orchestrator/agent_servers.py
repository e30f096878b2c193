"""The orchestrator's view of the agent servers: send a Job, stop an attempt."""

import threading

import structlog

from orchestrator.queues.contract import Queues
from rollyard.errors import AgentUnreachable, RollyardError
from rollyard.http import Peer
from rollyard.messages import Accepted, AgentServer, Assignment, Lease

log = structlog.get_logger()

SEND_SECONDS = 10.0


class AgentServers:
    """Connections to the registered agent servers, by server id. Safe to share between threads."""

    def __init__(self, queues: Queues, token: str = "") -> None:
        self._queues = queues
        self._token = token
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}

    def know(self, server: AgentServer) -> None:
        """The server has (re)registered: forget an older address."""
        with self._lock:
            self._peers[server.server_id] = _connect(server, self._token)

    def send(self, assignment: Assignment) -> None:
        """Raises `AgentUnreachable`, or what the server refuses the Job with."""
        self._peer(assignment.lease.server_id).post("/jobs", assignment, Accepted)

    def stop(self, lease: Lease) -> None:
        """Best effort: the server's next heartbeat is told again."""
        try:
            self._peer(lease.server_id).post("/cancel", lease, Accepted)
        except RollyardError as error:
            log.info("stop_not_pushed", job_id=lease.job_id, error=str(error))

    def _peer(self, server_id: str) -> Peer:
        with self._lock:
            peer = self._peers.get(server_id)
        if peer is not None:
            return peer
        for server in self._queues.servers():
            if server.server_id == server_id:
                self.know(server)
                return self._peer(server_id)
        raise AgentUnreachable(f"agent server {server_id!r} has left")


def _connect(server: AgentServer, token: str) -> Peer:
    return Peer(
        server.url,
        name=f"agent server {server.server_id!r}",
        token=token,
        unreachable=AgentUnreachable,
        timeout_seconds=SEND_SECONDS,
    )
