"""The LLM servers that are announced: used as soon as they come, and left when they go.

- Of an LLM node that is its proxy; of a trainer, the LLM servers that it runs itself.

- The orchestrator is asked every `ASK_SECONDS`, as it does not know who follows. While it is away,
  nothing changes.
- A node that serves another model than this agent server's is none of ours.
"""

import threading
from collections.abc import Callable, Collection, Mapping

import structlog

from rollyard.errors import RollyardError
from rollyard.http import Peer
from rollyard.messages import LLMNodeList

ASK_SECONDS = 2.0
_CALL_SECONDS = 5.0

log = structlog.get_logger()


Follow = Callable[[Mapping[str, int], Collection[str]], None]


class LLMFollower:
    """Tells `follow` all proxies that are announced, with the numbers of their LLM servers, and all
    LLM servers of trainers."""

    def __init__(self, orchestrator: Peer, digest: str, follow: Follow) -> None:
        """`digest` is that of our model."""
        self._orchestrator = orchestrator
        self._digest = digest
        self._follow = follow
        self._closed = threading.Event()
        self._known: tuple[dict[str, int], set[str]] = ({}, set())

    def start(self) -> None:
        threading.Thread(target=self._live, name="follower", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def look(self) -> None:
        """Follow what is announced now. Raises `RollyardError`."""
        found = self._orchestrator.get("/llm-nodes", LLMNodeList, timeout_seconds=_CALL_SECONDS)
        proxies = {
            node.proxy: len(node.servers)
            for node in found.nodes
            if node.proxy and node.digest in ("", self._digest)
        }
        servers = {url for node in found.nodes if not node.url for url in node.servers}
        if (proxies, servers) != self._known:
            log.info("llm_servers_followed", proxies=sorted(proxies), servers=sorted(servers))
            self._known = proxies, servers
            self._follow(proxies, servers)

    def _live(self) -> None:
        trouble = ""
        while not self._closed.is_set():
            before = trouble
            try:
                self.look()
                trouble = ""
            except RollyardError as error:
                trouble = str(error)
                if trouble != before:
                    log.warning("llm_nodes_not_told", reason=trouble)
            except Exception as error:  # without this thread no new LLM server is ever used
                log.exception("llm_nodes_not_told", exc_info=error)
            self._closed.wait(ASK_SECONDS)
