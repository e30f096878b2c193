"""The LLM nodes, and the weights that every LLM server should serve.

- What is published is written down before any LLM server hears of it. Versions rise, by at most
  `MAX_VERSION_STEP`; one version never names two checkpoints, also after restarts of anything.
- Nothing is leased while an LLM node that has registered is not known to serve what is published,
  unless it has left or an operator has dismissed it since.
- What a node knows to be published counts if it is newer than what is written here.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from redis.client import Pipeline

from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.epochs import Epochs
from orchestrator.queues.question import Question
from rollyard import codec
from rollyard.errors import Conflict, NotFound
from rollyard.messages import LLMNode, Name, WeightUpdate

MAX_VERSION_STEP = 1_000_000
"""The largest step to the next version. Trainers may count otherwise than by one, while a slip
cannot use up all versions that there are."""
SILENT_SECONDS = 10.0
"""A time longer than an LLM node leaves between two heartbeats, also on a busy machine."""
NOTHING = WeightUpdate(path="", version=0)


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the LLM servers towards the weights that were published last."""

    version: int = 0
    """The version that was published last."""
    nodes: tuple[LLMNode, ...] = ()
    unready: dict[str, float] = {}
    """LLM node whose servers lack these weights -> since when, in unix seconds."""
    silent_seconds: dict[str, float] = {}
    """LLM node -> seconds since its last heartbeat."""

    @property
    def models(self) -> tuple[str, ...]:
        """Digests of the models that the LLM servers have: one, unless they are at odds."""
        return tuple(sorted({node.digest for node in self.nodes if node.digest}))


class Weights:
    def __init__(self, connection: RedisConnection, epochs: Epochs) -> None:
        self._connection = connection
        self._epochs = epochs

    def heartbeat(self, node: LLMNode) -> WeightUpdate | None:
        """Note the heartbeat of an LLM node. Returns the weights that its servers should serve;
        None for the model as started."""
        known = node.published or NOTHING
        version, path = self._connection.run_script(
            "llm_heartbeat",
            node.node_id,
            codec.encode(node),
            node.serves,
            known.version,
            known.path,
            node.digest,
        )
        return WeightUpdate(path=path.decode(), version=version) if version else None

    def nodes(self) -> list[LLMNode]:
        return _nodes(self._connection.do(lambda r: r.hvals(self._connection.key("llm_nodes"))))

    def present(self) -> tuple[LLMNode, ...]:
        """The LLM nodes, without those that are silent for longer than a live one can be."""
        serving = self._connection.ask(self.serving())
        silent = serving.silent_seconds
        return tuple(
            node for node in serving.nodes if silent.get(node.node_id, 0.0) < SILENT_SECONDS
        )

    def dismiss(self, node_id: Name) -> None:
        """Stop waiting for an LLM node that is gone for good; one that lives after all comes back
        with its next heartbeat. Raises `NotFound`, and `Conflict` for one that was heard of a
        moment ago."""
        verdict = self._connection.run_script("dismiss", node_id, SILENT_SECONDS)
        if verdict == 0:
            raise NotFound(
                f"there is no LLM node {node_id!r}", fix="list them with `rollyard status --json`"
            )
        if verdict != 1:
            raise Conflict(
                f"LLM node {node_id!r} was heard of {float(verdict):.0f} s ago",
                fix=f"stop it, and dismiss it {SILENT_SECONDS:g} s later",
            )

    def leave(self, node_id: Name) -> None:
        """Stop waiting for an LLM node that says goodbye."""
        self._connection.run_script("dismiss", node_id, 0.0)

    def publish(self, update: WeightUpdate, run_id: str = "", *, epoch: int | None = None) -> None:
        """Publish weights for every LLM server; repeating it changes nothing. Without `run_id`
        an operator publishes it.

        Raises `Conflict` when the version does not rise, or rises too far, `TrainerReplaced` when
        `epoch` is not that of the Run's trainer any more, and `NotFound`.
        """
        verdict, *current = self._connection.run_script(
            "publish", update.version, update.path, MAX_VERSION_STEP, run_id, epoch
        )
        if verdict == b"not driven":
            raise self._epochs.why_not_driven(run_id)
        if verdict == b"used":
            raise Conflict(
                f"weight version {update.version} does not rise: {current[0]} was published",
                fix="number every update higher than all before it, for as long as this Redis "
                "lives: Client.weight_version() + 1",
            )
        if verdict == b"far":
            raise Conflict(
                f"weight version {update.version} is more than {MAX_VERSION_STEP} above "
                f"{current[0]}, which was published last",
                fix="raise it in smaller steps: versions can never fall again",
            )

    def confirm(self, update: WeightUpdate, nodes: Sequence[str]) -> None:
        """Note that these LLM nodes serve the update."""
        self._connection.run_script("confirm", update.version, *nodes)

    def withdraw(self, update: WeightUpdate) -> None:
        """Take back an update that no LLM server has loaded: what was published before stands."""
        self._connection.run_script("withdraw", update.version)

    def version(self) -> int:
        """The highest version that was ever published."""
        return int(
            self._connection.do(lambda r: r.hget(self._connection.key("published"), "version")) or 0
        )

    def serving(self) -> Question[Serving]:
        """What the LLM servers serve, and what they should."""

        def put(pipe: Pipeline) -> None:
            pipe.time()
            pipe.hget(self._connection.key("published"), "version")
            pipe.hvals(self._connection.key("llm_nodes"))
            pipe.hgetall(self._connection.key("unready"))
            pipe.zrange(self._connection.key("llm_seen"), 0, -1, withscores=True)

        return Question(put, _serving)


def _serving(answers: list[Any]) -> Serving:
    (seconds, micros), version, nodes, unready, seen = answers
    at = seconds + micros / 1e6
    return Serving(
        version=int(version or 0),
        nodes=tuple(_nodes(nodes)),
        unready={node.decode(): float(since) for node, since in unready.items()},
        silent_seconds={node.decode(): max(0.0, at - seen_at) for node, seen_at in seen},
    )


def _nodes(stored: Sequence[bytes]) -> list[LLMNode]:
    return sorted((codec.decode(node, LLMNode) for node in stored), key=lambda node: node.node_id)
