"""Calls to the LLM nodes: weight updates for all, scores from all.

LLM servers that a trainer announces as its own have no control service: the weights are on them
when the trainer says so.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orchestrator.queues.epochs import Epochs
from orchestrator.queues.weights import Weights
from rollyard.errors import Conflict, InvalidMessage, LLMUnavailable, RollyardError
from rollyard.http import Peer
from rollyard.messages import (
    LLMNode,
    ScoreRequest,
    Scores,
    ToServe,
    TrainerServers,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)

T = TypeVar("T")

UPDATE_SECONDS = 600.0
"""Time for an update: a large checkpoint on a shared file system takes minutes to load."""
SCORE_SECONDS = 60.0


class LLMNodes:
    """The registered LLM nodes. It owns no state: an update is written to the queues before any
    node hears of it."""

    def __init__(self, weights: Weights, epochs: Epochs, token: str = "") -> None:
        self._weights = weights
        self._epochs = epochs
        self._token = token

    def heartbeat(self, node: LLMNode) -> ToServe:
        """Note the heartbeat of a node, and answer with the weights that it should serve."""
        return ToServe(published=self._weights.heartbeat(node))

    def announce(self, announced: TrainerServers) -> None:
        """Note the LLM servers that a trainer announces as its own, or that it takes them back.
        Raises `Conflict` if an LLM node has that name."""
        if any(node.url for node in self._weights.nodes() if node.node_id == announced.name):
            raise Conflict(
                f"{announced.name!r} is an LLM node of this deployment",
                fix="announce the trainer's LLM servers under another name",
            )
        if not announced.servers:
            return self._weights.leave(announced.name)
        node = LLMNode(
            node_id=announced.name,
            url="",
            servers=announced.servers,
            model="",
            serves=self._weights.version(),
        )
        self._weights.heartbeat(node)
        return None

    def update(
        self, update: WeightUpdate, run_id: str = "", *, epoch: int | None = None
    ) -> WeightReport:
        """Load new weights on all LLM servers of all nodes at once, for a Run's trainer, or without
        `run_id` for an operator; without a path the trainer has put them there, and they are only
        labelled.

        Raises `Conflict`, `TrainerReplaced`, `NotFound`, `LLMUnavailable`, or the error of the
        first node that failed. Repeating an update gives the same answer; a node that failed gets
        the update again with the answer to its next heartbeat.
        """
        self._epochs.check(run_id, epoch)
        nodes = self._nodes()
        if update.path:
            self._check_that_we_load()
        self._weights.publish(update, run_id, epoch=epoch)
        ours = [node for node in nodes if node.url]
        reports, failures = self._on_all(ours, "/weights", update, WeightReport, UPDATE_SECONDS)
        refused = [failure for failure in failures if isinstance(failure, InvalidMessage)]
        if refused and len(refused) == len(ours):
            self._weights.withdraw(update)  # no server has loaded it: its version stays free
        if failures:
            raise failures[0]
        self._weights.confirm(update, [node.node_id for node in nodes])
        own = (server for node in nodes if not node.url for server in node.servers)
        return WeightReport(
            version=update.version,
            servers=(*(server for report in reports for server in report.servers), *own),
            paused_seconds=max((report.paused_seconds for report in reports), default=0.0),
            load_seconds=max((report.load_seconds for report in reports), default=0.0),
            unchanged=tuple(server for report in reports for server in report.unchanged),
            behind={url: why for report in reports for url, why in report.behind.items()},
        )

    def weight_version(self) -> WeightVersion:
        """The highest weight version ever published. Raises `LLMUnavailable` before any node has
        registered: queues that lost their state learn the version from the nodes."""
        self._nodes()
        return WeightVersion(version=self._weights.version())

    def score(self, request: ScoreRequest) -> Scores:
        """The logprobs that every LLM server gives to these tokens."""
        nodes = [node for node in self._nodes() if node.url]
        if not nodes:
            raise LLMUnavailable(
                "there are no LLM servers but the trainer's own, which Rollyard does not score with"
            )
        found, failures = self._on_all(nodes, "/score", request, Scores, SCORE_SECONDS)
        if failures:
            raise failures[0]
        return Scores(
            logprobs={url: each for scores in found for url, each in scores.logprobs.items()}
        )

    def _nodes(self) -> list[LLMNode]:
        nodes = self._weights.nodes()
        if not nodes:
            raise LLMUnavailable(
                "no LLM node has registered",
                fix="wait until its LLM servers are up; the log of llm_servers says how far it is",
            )
        return nodes

    def _check_that_we_load(self) -> None:
        """Raise `InvalidMessage` if some LLM servers get their weights from a trainer alone."""
        if own := [node.node_id for node in self._weights.present() if not node.url]:
            raise InvalidMessage(
                f"the LLM servers of {' '.join(own)} get their weights from their trainer",
                fix="put the weights there, and call weights_updated",
            )

    def _on_all(
        self, nodes: Sequence[LLMNode], path: str, message: object, kind: type[T], seconds: float
    ) -> tuple[list[T], list[RollyardError]]:
        """The answers of the nodes to `message`, and the errors of those that failed."""

        def ask(node: LLMNode) -> T | RollyardError:
            peer = Peer(
                node.url,
                token=self._token,
                name=f"LLM node {node.node_id!r}",
                unreachable=LLMUnavailable,
                timeout_seconds=seconds,
            )
            try:
                return peer.post(path, message, kind)
            except RollyardError as error:
                return error
            finally:
                peer.close()

        with ThreadPoolExecutor(max(1, len(nodes))) as threads:
            outcomes = list(threads.map(ask, nodes))
        failures = [outcome for outcome in outcomes if isinstance(outcome, RollyardError)]
        return [each for each in outcomes if not isinstance(each, RollyardError)], failures
