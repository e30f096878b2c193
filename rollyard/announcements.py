"""The LLM servers that a trainer announces as its own: again and again, until it takes them back.

A trainer that dies without a word is silent, and agent servers leave its LLM servers for that.
"""

import logging
import threading
from functools import partial

from rollyard.api import OrchestratorAPI
from rollyard.errors import RollyardError
from rollyard.keep_alive import KeepAlive
from rollyard.messages import TrainerServers

log = logging.getLogger(__name__)


class Announcements:
    """Owns what one client announces. Safe to share between threads."""

    def __init__(self, api: OrchestratorAPI) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._alive: dict[str, tuple[TrainerServers, KeepAlive]] = {}

    def announce(self, servers: TrainerServers) -> None:
        """Announce the servers in the place of those that had this name until now. Raises
        `RollyardError`."""
        self._take_back(servers.name)
        self._api.announce(servers)
        if servers.servers:
            alive = KeepAlive(f"announce-{servers.name}", partial(self._again, servers))
            with self._lock:
                self._alive[servers.name] = servers, alive
            alive.start()

    def close(self) -> None:
        """Take everything back. A failure is logged: whoever asks these servers finds out."""
        for name in tuple(self._alive):
            self._take_back(name)
            try:
                self._api.announce(TrainerServers(name=name, servers=()), patiently=False)
            except RollyardError as error:
                log.info("LLM servers of %s were not taken back: %s", name, error)

    def _take_back(self, name: str) -> None:
        with self._lock:
            _, alive = self._alive.pop(name, (None, None))
        if alive is not None:
            alive.stop()

    def _again(self, servers: TrainerServers) -> None:
        with self._lock:  # so that nothing is announced after it was taken back
            current, _ = self._alive.get(servers.name, (None, None))
            if current is servers:
                self._api.announce(servers, patiently=False)
