"""Whether anybody listens where an agent server did.

A refused connection tells that the process of a server has ended. Nothing else tells anything: one
that is paused, slow or cut off may run its Jobs still, and is given a Lease to be heard.
"""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from urllib.parse import urlsplit

from orchestrator.queues.servers import Servers

KNOCK_SECONDS = 1.0
"""The longest that one may take."""
_KNOCKS_OF_LEASE = 20
"""Short beside a Lease: a reaper that has stood still for half of one judges nobody."""
AT_ONCE = 8


class Knocking:
    """Safe to share between threads."""

    def __init__(self, servers: Servers, lease_seconds: float) -> None:
        self._servers = servers
        self._seconds = min(KNOCK_SECONDS, lease_seconds / _KNOCKS_OF_LEASE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="knocking")

    def ended(self, servers: Iterable[str]) -> set[str]:
        """Those of these agent servers at whose addresses nobody listens, as far as that is known
        within two knocks: who waits for this keeps the Leases."""
        urls = {each.server_id: each.url for each in self._servers.registered()}
        knocks = {
            self._threads.submit(nobody_listens, urls[server], self._seconds): server
            for server in servers
            if server in urls
        }
        answered, unanswered = wait(knocks, 2 * self._seconds)
        for knock in unanswered:
            knock.cancel()
        return {knocks[knock] for knock in answered if knock.result()}


def nobody_listens(url: str, seconds: float) -> bool:
    """Whether the connection is refused at every address of the URL's host."""
    parts = urlsplit(url)
    address = parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection(address, seconds, all_errors=True).close()
    except ExceptionGroup as failed:
        return failed.split(ConnectionRefusedError)[1] is None
    except OSError:  # the host has no address
        pass
    return False
