"""A loop in the order of rLLM's own on its verl backend (`UnifiedTrainer._fit_on_policy` of its
main branch of August 2026, commit 9beb6e0f). The rows are what it makes of each episode's steps.
"""

from collections.abc import Sequence
from typing import Any

from rollyard.messages import Result
from rollyard.rows import Row
from rollyard.trainers.rllm import Rollouts, members, outputs
from rollyard.trainers.sequences import rewards
from tests.trainers.contract import Adapter, Start, TrainedRow
from tests.trainers.verl_loop import LoopOnVerl


class RllmLoop(LoopOnVerl):
    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._rollouts = Rollouts(self.config(), start.client, start.run)

    def rows_of(self, step: int) -> list[TrainedRow]:
        sampled = members(self._rollouts.next(step))
        return [row for each in sampled for row in trained_rows(*each)]

    def end(self) -> None:
        self._rollouts.end(self._start.steps)

    def evaluate(self, rows: Sequence[Row]) -> float:
        found, _ = rewards(self._rollouts.evaluated(rows, 1))
        return float(found.mean())


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
