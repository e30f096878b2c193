"""A training of one trainer, process after process, and what of the Batches it was on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rollyard.messages import Batch, BatchRequest, Result, RunSettings, RunStatus, Sampling
from rollyard.messages import Sequence as Tokens
from rollyard.rows import Row
from tests.trainers.clock import Clock
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, TrainedRow
from tests.trainers.orchestrator import Orchestrator
from tests.trainers.process import Fails, Moment, Process, never

STEPS = 3
"""Of a whole training."""


class Given(NamedTuple):
    """What a process of the system is told."""

    adapter: str
    directory: Path
    policy_dir: Path
    steps: int
    rows: int


@dataclass
class Training:
    """A training of one trainer, process after process."""

    adapter: Adapter
    orchestrator: Orchestrator
    directory: Path
    policy_dir: Path
    steps: int = STEPS
    rows: int = GROUPS * STEPS
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Of each row, beside its number."""

    def __post_init__(self) -> None:
        self.trained: list[Sequence[TrainedRow]] = []
        """What the weights were trained on, step by step."""
        self.weights: Sequence[float] = ()
        self.process = Process(self.directory)

    @property
    def given(self) -> Given:
        return Given(self.adapter.name, self.directory, self.policy_dir, self.steps, self.rows)

    def another(self, directory: Path) -> "Training":
        """The same from its beginning."""
        directory.mkdir()
        return Training(self.adapter, Orchestrator(), directory, self.policy_dir)

    def run_process(
        self,
        dies_at: Moment | None = None,
        fails: Fails = never,
        clock: Clock | None = None,
    ) -> None:
        """Run the next process to its end, or until it dies or an error ends it."""
        self.process = Process(self.directory, dies_at, fails)
        made = self.process.trainer(
            self.adapter,
            self.orchestrator,
            [{**row, **self.columns} for row in rows(self.rows)],
            self.policy_dir,
            steps=self.steps,
            clock=clock,
        )
        try:
            with made as trainer:
                trainer.train()
                self.weights = trainer.weights()
        finally:
            for number, trained in self.process.steps.items():
                self.trained[number:] = [trained]

    def request(self, batch_id: str, groups: int) -> None:
        """Request a Batch of so many Groups, as an earlier process did."""
        settings = RunSettings(
            run_id="run",
            group_size=GROUP_SIZE,
            sampling=Sampling(temperature=TEMPERATURE),
            max_staleness=self.adapter.max_staleness,
        )
        request = BatchRequest(batch_id=batch_id, requested_batch_size=groups)
        self.orchestrator.post("/runs", settings, RunStatus)
        self.orchestrator.post("/runs/run/batches", request, RunStatus)

    def batches(self) -> list[Batch]:
        """Those that were trained on, as the trainer acknowledged them."""
        run = self.orchestrator.runs["run"]
        return [run.sampled[batch_id] for batch_id in run.acknowledged]

    def pairs(self) -> list[tuple["Sampled", TrainedRow]]:
        """What was sampled beside what was trained on. A row that is no part of the step's Batch
        fails the test, and so does a sequence of the Batch that is not trained on once."""
        done, sampled = len(self.trained), len(self.batches())
        assert done == sampled, f"{done} steps, {sampled} Batches: is `trained` called after each?"
        steps = zip(self.batches(), self.trained, strict=True)
        return [pair for batch, trained in steps for pair in matched(self.adapter, batch, trained)]

    def dataset_rows(self) -> list[int]:
        """The rows that the weights were trained on, by their numbers in the dataset."""
        found = []
        for trained in self.trained:
            batches = self.orchestrator.runs["run"].sampled.values()
            batch = next(each for each in batches if has(each, trained[0]))
            matched(self.adapter, batch, trained)
            found += [group.prompt.instance["row"] for group in batch.groups]
        return found

    def equals(self, whole: "Training") -> None:
        """Assert that it was on each row once, and came to the same weights as the `whole` one."""
        assert self.dataset_rows() == list(range(self.rows))
        assert not self.orchestrator.runs["run"].delivered, "a batch is not acknowledged"
        assert self.weights == pytest.approx(whole.weights, rel=1e-6, abs=5e-6)


@dataclass(frozen=True)
class Sampled:
    """A sequence of a Batch."""

    result: Result
    tokens: Tokens
    group: str

    def is_in(self, row: TrainedRow) -> bool:
        sampled = max((turn.end for turn in self.tokens.turns), default=0)
        length = len(row.token_ids)
        same = self.tokens.token_ids[:length].tolist() == list(row.token_ids)
        return same and length >= sampled


def rows(count: int, first: int = 0) -> list[Row]:
    return [{"data_source": "x", "row": number} for number in range(first, first + count)]


def sampled_in(batch: Batch, *, last_sequence_alone: bool) -> list[Sampled]:
    return [
        Sampled(result, sequence, group.group_id)
        for group in batch.groups
        for result in group.results
        if result.trajectory is not None
        for sequence in result.trajectory.sequences[-1 if last_sequence_alone else 0 :]
    ]


def matched(
    adapter: Adapter, batch: Batch, trained: Sequence[TrainedRow]
) -> list[tuple[Sampled, TrainedRow]]:
    left = sampled_in(batch, last_sequence_alone=adapter.last_sequence_alone)
    pairs = []
    for row in trained:
        found = next((each for each in left if each.is_in(row)), None)
        assert found is not None, f"{row} is trained on, and is not in batch {batch.batch_id}"
        left.remove(found)
        pairs.append((found, row))
    assert not left, f"of batch {batch.batch_id} this is not trained on: {left}"
    return pairs


def has(batch: Batch, row: TrainedRow) -> bool:
    return any(each.is_in(row) for each in sampled_in(batch, last_sequence_alone=False))
