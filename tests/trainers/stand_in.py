"""A loop that stands in for a trainer which cannot be installed here, around what its adapter
makes of a Batch.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rollyard.messages import Batch
from rollyard.rows import Row
from rollyard.trainers.states import from_json
from rollyard.trainers.steps import Steps, write_whole
from tests.trainers.contract import GROUPS, Start, TrainedRow, Trainer
from tests.trainers.evaluated import mean_reward

Convert = Callable[[Batch], Sequence[TrainedRow]]
"""The rows in what the adapter makes of a Batch."""


class StandIn:
    def __init__(self, start: Start, convert: Convert) -> None:
        self._start = start
        self._convert = convert
        self._checkpoint = start.directory / "checkpoint.json"
        self._steps = Steps(start.run, GROUPS, start.directory / "published")
        self._weights: list[float] = []
        if self._checkpoint.exists():
            saved = from_json(self._checkpoint.read_text())
            self._weights = saved["weights"]
            self._steps.load_state_dict(saved["steps"])

    def train(self) -> None:
        self._steps.begin(self._save)
        while len(self._weights) < self._start.steps:
            rows = self._convert(self._steps.next())
            self._start.stepped(len(self._weights), rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            self._steps.trained(self._save)
            saved = {"weights": self._weights, "steps": self._steps.state_dict()}
            write_whole(self._checkpoint, saved)
        self._steps.end()

    def evaluate(self, rows: Sequence[Row]) -> float:
        return mean_reward(self._start, rows)

    def weights(self) -> list[float]:
        return self._weights

    def _save(self, path: Path) -> None:
        (path / "weights.json").write_text(json.dumps(self._weights))


def stand_in(convert: Convert) -> Callable[[Start], Trainer]:
    """The `trainer` of an Adapter that only converts Batches."""

    def trainer(start: Start) -> Trainer:
        return StandIn(start, convert)

    return trainer
