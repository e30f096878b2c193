"""A loop in the order of verl's own (`PPOTrainer.fit` of 0.9.1, mode `sync`), with a dictionary in
the place of its TransferQueue. The rows are those that are stored there.
"""

from collections.abc import Sequence
from typing import Any

from rollyard.client import Client
from rollyard.rows import Row
from rollyard.trainers.sequences import rewards
from rollyard.trainers.verl import Rollouts
from rollyard.trainers.verl.fields import StoredSequence
from rollyard.training_run import TrainingRun
from tests.trainers.contract import GROUPS, Adapter, Start, TrainedRow
from tests.trainers.verl_loop import LoopOnVerl


class VerlLoop(LoopOnVerl):
    def __init__(self, start: Start) -> None:
        super().__init__(start)

        class Stored(Rollouts):
            queue: dict[str, list[StoredSequence]] = {}

            @classmethod
            def start(cls, config: Any) -> tuple[Client, TrainingRun]:
                return start.client, start.run

            def put(
                self, partition: str, uids: Sequence[str], found: Sequence[StoredSequence]
            ) -> None:
                self.queue[partition] = list(found)

        self._rollouts = Stored.create(config=self.config(), llm_client=None)

    def rows_of(self, step: int) -> list[TrainedRow]:
        uids = [f"uid-{step}-{number}" for number in range(GROUPS)]
        self._rollouts.generate_sequences({"uid": uids, "global_steps": step})
        return [trained_row(record) for record in self._rollouts.queue["train"]]

    def end(self) -> None:
        self._rollouts.end(self._start.steps)

    def evaluate(self, rows: Sequence[Row]) -> float:
        prompts = [{"data_source": "x", "extra_info": {"row": row["row"]}} for row in rows]
        found, _ = rewards(self._rollouts.evaluated(prompts))
        return float(found.mean())


def trained_row(record: StoredSequence) -> TrainedRow:
    fields = record.fields
    none = [0.0] * len(fields["prompts"])
    return TrainedRow(
        token_ids=fields["input_ids"].tolist(),
        loss_mask=[False] * len(none) + fields["response_mask"].astype(bool).tolist(),
        logprobs=none + fields["rollout_log_probs"].tolist(),
        reward=float(fields["rm_scores"].sum()),
        group=fields["uid"],
    )


ADAPTER = Adapter(
    name="verl", trainer=VerlLoop, without=frozenset({"weight_versions", "advantage"})
)
