"""A loop in the order of verl's own (`PPOTrainer.fit` of 0.9.1, mode `sync`), with a dictionary in
the place of its TransferQueue. The rows are those that are stored there.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rollyard.client import Client
from rollyard.rows import Row
from rollyard.trainers.sequences import rewards
from rollyard.trainers.steps import write_whole
from rollyard.trainers.verl import Rollouts
from rollyard.trainers.verl.config import weights_of
from rollyard.trainers.verl.fields import StoredSequence
from rollyard.training_run import TrainingRun
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow


class VerlLoop:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._output = start.directory / "output"
        self._latest = start.directory / "latest.json"
        """verl's latest_checkpointed_iteration.txt."""
        self._weights: list[float] = []
        if self._latest.exists():
            step = json.loads(self._latest.read_text())
            saved = self._output / f"global_step_{step}" / "weights.json"
            self._weights = json.loads(saved.read_text())

        class Stored(Rollouts):
            queue: dict[str, list[StoredSequence]] = {}

            @classmethod
            def start(cls, config: Any) -> tuple[Client, TrainingRun]:
                return start.client, start.run

            def put(
                self, partition: str, uids: Sequence[str], found: Sequence[StoredSequence]
            ) -> None:
                self.queue[partition] = list(found)

        self._rollouts = Stored.create(config=self._config(), llm_client=None)

    def train(self) -> None:
        self._write_weights()
        while len(self._weights) < self._start.steps:
            step = len(self._weights) + 1
            uids = [f"uid-{step}-{number}" for number in range(GROUPS)]
            self._rollouts.generate_sequences({"uid": uids, "global_steps": step})
            rows = [trained_row(record) for record in self._rollouts.queue["train"]]
            self._start.stepped(step - 1, rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            self._write_checkpoint(step)
            self._write_weights()
        self._rollouts.end(self._start.steps)

    def evaluate(self, rows: Sequence[Row]) -> float:
        prompts = [{"data_source": "x", "extra_info": {"row": row["row"]}} for row in rows]
        found, _ = rewards(self._rollouts.evaluated(prompts))
        return float(found.mean())

    def weights(self) -> list[float]:
        return self._weights

    def _write_weights(self) -> None:
        """As the worker's rollout backend does before a step begins."""
        directory = weights_of(self._start.directory / "weights", len(self._weights))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "weights.json").write_text(json.dumps(self._weights))

    def _write_checkpoint(self, step: int) -> None:
        directory = self._output / f"global_step_{step}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "weights.json").write_text(json.dumps(self._weights))
        write_whole(self._latest, step)

    def _config(self) -> SimpleNamespace:
        rollout = SimpleNamespace(
            n=GROUP_SIZE,
            temperature=TEMPERATURE,
            val_kwargs=SimpleNamespace(n=1),
            custom={"checkpoints": str(self._start.directory / "weights")},
        )
        return SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=rollout),
            data=SimpleNamespace(train_batch_size=GROUPS),
            trainer=SimpleNamespace(
                default_local_dir=str(self._output), v1=SimpleNamespace(trainer_mode="sync")
            ),
            algorithm={},
        )


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
