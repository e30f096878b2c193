"""A loop in the order of rLLM's own on its verl backend (`UnifiedTrainer._fit_on_policy` of its
main branch of August 2026, commit 9beb6e0f). The rows are what it makes of each episode's steps.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rollyard.messages import Result
from rollyard.rows import Row
from rollyard.trainers.rllm import Rollouts, members, outputs
from rollyard.trainers.sequences import rewards
from rollyard.trainers.steps import write_whole
from rollyard.trainers.verl.config import weights_of
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow


class RllmLoop:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._output = start.directory / "output"
        self._latest = start.directory / "latest.json"
        self._weights: list[float] = []
        if self._latest.exists():
            folder = self._output / f"global_step_{json.loads(self._latest.read_text())}"
            self._weights = json.loads((folder / "weights.json").read_text())
        rollout = SimpleNamespace(
            n=GROUP_SIZE,
            temperature=TEMPERATURE,
            custom={"checkpoints": str(start.directory / "weights")},
        )
        config = SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=rollout),
            data=SimpleNamespace(train_batch_size=GROUPS),
            trainer=SimpleNamespace(default_local_dir=str(self._output)),
        )
        self._rollouts = Rollouts(config, start.client, start.run)

    def train(self) -> None:
        self._write_weights()
        while len(self._weights) < self._start.steps:
            step = len(self._weights) + 1
            sampled = members(self._rollouts.next(step))
            rows = [row for each in sampled for row in trained_rows(*each)]
            self._start.stepped(step - 1, rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            folder = self._output / f"global_step_{step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "weights.json").write_text(json.dumps(self._weights))
            write_whole(self._latest, step)
            self._write_weights()
        self._rollouts.end(self._start.steps)

    def evaluate(self, rows: Sequence[Row]) -> float:
        found, _ = rewards(self._rollouts.evaluated(rows, 1))
        return float(found.mean())

    def weights(self) -> list[float]:
        return self._weights

    def _write_weights(self) -> None:
        directory = weights_of(self._start.directory / "weights", len(self._weights))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "weights.json").write_text(json.dumps(self._weights))


def trained_rows(identity: str, _: Row, result: Result) -> list[TrainedRow]:
    """One of steps that extend each other, as rLLM's `_process_trajectory` merges them."""
    merged: list[dict[str, list[Any]]] = []
    for step in outputs(result):
        row = merged[-1] if merged else {"ids": [], "mask": [], "logprobs": []}
        known = len(row["ids"])
        if not known or step["prompt_ids"][:known] != row["ids"]:
            row, known = {"ids": [], "mask": [], "logprobs": []}, 0
            merged.append(row)
        observed = step["prompt_ids"][known:]
        row["ids"] += observed + step["completion_ids"]
        row["mask"] += [False] * len(observed) + [True] * len(step["completion_ids"])
        row["logprobs"] += [0.0] * len(observed) + step["logprobs"]
    return [
        TrainedRow(
            token_ids=row["ids"],
            loss_mask=row["mask"],
            logprobs=row["logprobs"],
            reward=result.reward,
            group=identity.partition(":")[0],
        )
        for row in merged
    ]


ADAPTER = Adapter(
    name="rllm", trainer=RllmLoop, without=frozenset({"weight_versions", "advantage"})
)
