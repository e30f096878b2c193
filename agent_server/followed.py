"""The LLM servers that LLM nodes announce: used as soon as they come, and left when they go.

- The orchestrator is asked every `ASK_SECONDS`, as it does not know who follows. While it is away,
  nothing changes.
- A node that serves another model than this agent server's is none of ours.
"""

import threading
from collections.abc import Callable, Mapping

import structlog

from rollyard.errors import RollyardError
from rollyard.http import Peer
from rollyard.messages import LLMNodeList

ASK_SECONDS = 2.0
_CALL_SECONDS = 5.0

log = structlog.get_logger()


class LLMFollower:
    """Tells `follow` all proxies that are announced, with the numbers of their LLM servers."""

    def __init__(
        self, orchestrator: Peer, digest: str, follow: Callable[[Mapping[str, int]], None]
    ) -> None:
        """`digest` is that of our model."""
        self._orchestrator = orchestrator
        self._digest = digest
        self._follow = follow
        self._closed = threading.Event()
        self._known: dict[str, int] = {}

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
        if proxies != self._known:
            log.info("llm_servers_followed", proxies=sorted(proxies))
            self._known = proxies
            self._follow(proxies)

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
