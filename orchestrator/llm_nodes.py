"""The orchestrator's view of the LLM nodes: new weights for all, scores from all."""

from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from orchestrator.queues.redis_queues import Queues
from rollyard.errors import LLMUnavailable, RollyardError
from rollyard.http import Peer
from rollyard.messages import (
    LLMNode,
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)

log = structlog.get_logger()

T = TypeVar("T")

UPDATE_SECONDS = 600.0
"""Loading a large checkpoint from a shared file system takes minutes."""
SCORE_SECONDS = 60.0
HELLO_SECONDS = 5.0
"""How long a node that registers waits for the others to say what they serve."""


class LLMNodes:
    def __init__(self, queues: Queues, token: str = "") -> None:
        self._queues = queues
        self._token = token

    def update(self, update: WeightUpdate) -> WeightReport:
        """Load new weights on every LLM server of every node, all nodes at once.

        Raises `LLMUnavailable`, or the error of the first node that failed; and `QueueUnavailable`
        when the version could not be noted. Repeated, the nodes answer the same again.
        """
        reports = self._on_all(
            lambda peer: peer.post("/weights", update, WeightReport), UPDATE_SECONDS
        )
        self._note(update.version)
        return WeightReport(
            version=update.version,
            servers=tuple(server for report in reports for server in report.servers),
            paused_seconds=max(report.paused_seconds for report in reports),
        )

    def version(self) -> WeightVersion:
        """The highest weight version that any node serves."""
        highest = self._highest(SCORE_SECONDS)
        self._note(highest)
        return WeightVersion(version=highest)

    def register(self, node: LLMNode) -> None:
        """A node's servers are there; they may serve other weights than those last heard of."""
        self._queues.register_llm_node(node)
        try:
            self._note(self._highest(HELLO_SECONDS))
        except RollyardError as error:
            log.info("weight_version_unknown", node_id=node.node_id, error=str(error))

    def score(self, request: ScoreRequest) -> Scores:
        logprobs: dict[str, array[float]] = {}
        for scores in self._on_all(
            lambda peer: peer.post("/score", request, Scores), SCORE_SECONDS
        ):
            logprobs |= scores.logprobs
        return Scores(logprobs=logprobs)

    def _highest(self, seconds: float) -> int:
        versions = self._on_all(lambda peer: peer.get("/weights", WeightVersion), seconds)
        return max(weights.version for weights in versions)

    def _note(self, version: int) -> None:
        """Jobs leased from now on begin under these weights, and Batches update them: with an older
        version noted, a Batch would have tokens older than it may."""
        self._queues.set_weights(version)

    def _on_all(self, ask: Callable[[Peer], T], seconds: float) -> list[T]:
        nodes = self._queues.llm_nodes()
        if not nodes:
            raise LLMUnavailable(
                "no LLM node has registered",
                fix="wait until its LLM servers are up; the log of llm_servers says how far it is",
            )
        with ThreadPoolExecutor(len(nodes)) as threads:
            return list(threads.map(lambda node: self._on(node, ask, seconds), nodes))

    def _on(self, node: LLMNode, ask: Callable[[Peer], T], seconds: float) -> T:
        peer = Peer(
            node.url,
            token=self._token,
            name=f"LLM node {node.node_id!r}",
            unreachable=LLMUnavailable,
            timeout_seconds=seconds,
        )
        try:
            return ask(peer)
        finally:
            peer.close()
