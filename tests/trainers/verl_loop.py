"""What loops in the order of trainers on verl have in common: its steps, weights and checkpoints.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import json
from collections.abc import Sequence
from types import SimpleNamespace

from rollyard.trainers.steps import write_whole
from rollyard.trainers.verl.config import weights_of
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Start, TrainedRow


class LoopOnVerl:
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

    def rows_of(self, step: int) -> Sequence[TrainedRow]:
        """Those that `step` is trained on."""
        raise NotImplementedError

    def end(self) -> None:
        """The last step is trained, and its weights are written."""
        raise NotImplementedError

    def train(self) -> None:
        self._write_weights()
        while len(self._weights) < self._start.steps:
            step = len(self._weights) + 1
            rows = self.rows_of(step)
            self._start.stepped(step - 1, rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            self._write_checkpoint(step)
            self._write_weights()
        self.end()

    def weights(self) -> list[float]:
        return self._weights

    def config(self) -> SimpleNamespace:
        """verl's."""
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
