"""The orchestrator's view of the LLM nodes: new weights for all, scores from all."""

from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.queues.contract import Queues
from rollyard.errors import LLMUnavailable
from rollyard.http import Peer
from rollyard.messages import LLMNode, ScoreRequest, Scores, WeightReport, WeightUpdate

T = TypeVar("T")

UPDATE_SECONDS = 600.0
"""Loading a large checkpoint from a shared file system takes minutes."""
SCORE_SECONDS = 60.0


class LLMNodes:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def update(self, update: WeightUpdate) -> WeightReport:
        """Load new weights on every LLM server of every node, all nodes at once.

        Raises `LLMUnavailable`, or the error of the first node that failed.
        """
        reports = self._ask_all("/weights", update, WeightReport, UPDATE_SECONDS)
        return WeightReport(
            version=update.version,
            servers=tuple(server for report in reports for server in report.servers),
            paused_seconds=max(report.paused_seconds for report in reports),
        )

    def score(self, request: ScoreRequest) -> Scores:
        logprobs: dict[str, array[float]] = {}
        for scores in self._ask_all("/score", request, Scores, SCORE_SECONDS):
            logprobs |= scores.logprobs
        return Scores(logprobs=logprobs)

    def _ask_all(self, path: str, message: object, kind: type[T], seconds: float) -> list[T]:
        nodes = self._queues.llm_nodes()
        if not nodes:
            raise LLMUnavailable(
                "no LLM node has registered",
                fix="wait until its LLM servers are up; the log of llm_servers says how far it is",
            )
        with ThreadPoolExecutor(len(nodes)) as threads:
            return list(threads.map(lambda node: _ask(node, path, message, kind, seconds), nodes))


def _ask(node: LLMNode, path: str, message: object, kind: type[T], seconds: float) -> T:
    peer = Peer(
        node.url,
        name=f"LLM node {node.node_id!r}",
        unreachable=LLMUnavailable,
        timeout_seconds=seconds,
    )
    try:
        return peer.post(path, message, kind)
    finally:
        peer.close()
