"""LLM nodes and the weights that were published, in Redis; see `published.py`."""

from collections.abc import Sequence
from typing import Any

import redis

from orchestrator.queues.published import MAX_VERSION_STEP, SILENT_SECONDS, Serving
from orchestrator.queues.redis_trainers import RedisTrainers, epoch_argument
from rollyard import codec
from rollyard.errors import Conflict, NotFound
from rollyard.messages import LLMNode, WeightUpdate

NOTHING = WeightUpdate(path="", version=0)


class RedisWeights(RedisTrainers):
    def llm_heartbeat(self, node: LLMNode) -> WeightUpdate | None:
        """An LLM node is there. Returns what its servers should serve; None: the model as
        started."""
        known = node.published or NOTHING
        serves = "" if node.serves is None else node.serves
        told = serves, known.version, known.path, node.digest
        version, path = self._run_script("llm_heartbeat", node.node_id, codec.encode(node), *told)
        return _update(version, path)

    def llm_nodes(self) -> list[LLMNode]:
        return _nodes(self._do(lambda r: r.hvals(self._key("llm_nodes"))))

    def dismiss(self, node_id: str) -> None:
        """The node is gone for good; one that lives after all comes back with its next heartbeat.
        Raises `NotFound`, and `Conflict` for one that was heard of a moment ago."""
        verdict = self._run_script("dismiss", node_id, SILENT_SECONDS)
        if verdict == 0:
            raise NotFound(
                f"there is no LLM node {node_id!r}", fix="list them with `rollyard status --json`"
            )
        if verdict != 1:
            raise Conflict(
                f"LLM node {node_id!r} was heard of {float(verdict):.0f} s ago",
                fix=f"stop it, and dismiss it {SILENT_SECONDS:g} s later",
            )

    def publish(self, update: WeightUpdate, run_id: str = "", *, epoch: int | None = None) -> None:
        """Every LLM server should serve this from now on; again, nothing changes. Without `run_id`
        an operator publishes it.

        Raises `Conflict` when the version does not rise, or rises too far, `TrainerReplaced` when
        `epoch` is not that of the Run's trainer any more, and `NotFound`.
        """
        verdict, *current = self._run_script(
            "publish",
            update.version,
            update.path,
            MAX_VERSION_STEP,
            run_id,
            epoch_argument(epoch),
        )
        if verdict == b"not driven":
            raise self._taken_over(run_id)
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
        """These LLM nodes serve it now."""
        self._run_script("confirm", update.version, *nodes)

    def withdraw(self, update: WeightUpdate) -> None:
        """No LLM server heard of it: what was published before stands."""
        self._run_script("withdraw", update.version)

    def weights(self) -> int:
        """The highest version that was ever published."""
        return int(self._do(lambda r: r.hget(self._key("published"), "version")) or 0)

    def serving(self) -> Serving:
        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.time()
            pipe.hmget(self._key("published"), "version", "path")
            pipe.hvals(self._key("llm_nodes"))
            pipe.hgetall(self._key("unready"))
            pipe.zrange(self._key("llm_seen"), 0, -1, withscores=True)
            return pipe.execute()

        (seconds, micros), (version, path), nodes, unready, seen = self._do(read)
        at = seconds + micros / 1e6
        return Serving(
            published=_update(version or 0, path or b""),
            nodes=tuple(_nodes(nodes)),
            unready={node.decode(): float(since) for node, since in unready.items()},
            silent_seconds={node.decode(): max(0.0, at - seen_at) for node, seen_at in seen},
        )


def _update(version: bytes | int, path: bytes) -> WeightUpdate | None:
    """None for version 0: nothing was published yet."""
    number = int(version)
    return WeightUpdate(path=path.decode(), version=number) if number else None


def _nodes(stored: Sequence[bytes]) -> list[LLMNode]:
    return sorted((codec.decode(node, LLMNode) for node in stored), key=lambda node: node.node_id)
