"""Calls to the agent servers: sending Jobs; stopping, parking and resuming attempts."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from orchestrator.queues.conclusions import Moved
from orchestrator.queues.servers import Servers
from rollyard.errors import AgentUnreachable, RollyardError
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    GiveBack,
    GivenBack,
    Lease,
    Taken,
)

log = structlog.get_logger()

T = TypeVar("T")

SEND_SECONDS = 10.0


class AgentServers:
    """Connections to the registered agent servers, by server id. Safe to share between threads."""

    def __init__(self, servers: Servers, senders: ThreadPoolExecutor, token: str = "") -> None:
        self._servers = servers
        self._senders = senders
        self._token = token
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}

    def know(self, server: AgentServer) -> None:
        """Note a server that has registered, and forget its older address."""
        with self._lock:
            self._peers[server.server_id] = _connect(server, self._token)

    def send(self, server_id: str, load: Sequence[Assignment]) -> Taken:
        """Send Jobs to a server. Raises `AgentUnreachable`, or the error with which the server
        refused all of them."""
        return self._post(server_id, "/jobs", load, Taken)

    def recall(self, server_id: str, jobs: int) -> tuple[Lease, ...]:
        """Take so many Jobs, at the most, back from a server on which they wait for a Slot. Raises
        as `send`."""
        return self._post(server_id, "/recall", GiveBack(jobs), GivenBack).leases

    def push(self, moved: Moved) -> None:
        """Tell the servers at once which attempts they should stop, park and resume, with best
        effort: the answers to their next heartbeats repeat it."""
        orders = ("/cancel", moved.stop), ("/park", moved.park), ("/resume", moved.resume)
        for path, leases in orders:
            by_server: dict[str, list[Lease]] = defaultdict(list)
            for lease in leases:
                by_server[lease.server_id].append(lease)
            for server_id, theirs in by_server.items():  # by threads: a slow server holds up none
                self._senders.submit(self._push, server_id, path, theirs)

    def _push(self, server_id: str, path: str, leases: Sequence[Lease]) -> None:
        try:
            self._post(server_id, path, leases, Accepted)
        except RollyardError as error:
            log.info(
                "not_pushed", path=path, server_id=server_id, jobs=len(leases), error=str(error)
            )

    def _post(self, server_id: str, path: str, message: object, kind: type[T]) -> T:
        peer = self._peer(server_id)
        try:
            return peer.post(path, message, kind)
        except AgentUnreachable:
            self._forget(server_id, peer)
            now = self._peer(server_id)
            if now.url == peer.url:
                raise
            # It has registered elsewhere since, with another orchestrator of the same queues.
            return now.post(path, message, kind)

    def _forget(self, server_id: str, peer: Peer) -> None:
        with self._lock:
            if self._peers.get(server_id) is peer:
                del self._peers[server_id]

    def _peer(self, server_id: str) -> Peer:
        with self._lock:
            peer = self._peers.get(server_id)
        if peer is not None:
            return peer
        for server in self._servers.registered():
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
