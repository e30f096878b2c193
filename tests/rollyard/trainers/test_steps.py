"""A trainer whose weights are the list of the rows that they were trained on."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollyard.errors import Conflict, WeightMismatch
from rollyard.messages import Batch, RunSettings
from rollyard.trainers.steps import Steps, write_whole
from rollyard.training_run import TrainingRun
from tests.rollyard.fake_orchestrator import OrchestratorForTrainers

SIZE = 2
ROWS = 40


class Killed(Exception):
    pass


class FakeTrainer:
    """Writes a checkpoint after each step, and is killed when `moments` says so."""

    def __init__(
        self, directory: Path, orchestrator: OrchestratorForTrainers, moments: Iterator[bool]
    ) -> None:
        self._moments = moments
        self.checkpoint = directory / "checkpoint.json"
        settings = RunSettings(run_id="run", group_size=2, max_staleness=1)
        rows = ({"data_source": "x", "row": number} for number in range(ROWS))
        self.run = TrainingRun(orchestrator.take_over(), settings, rows)
        self.steps = Steps(self.run, SIZE, directory / "weights")
        self.seen: list[int] = []
        """The weights."""

    def go_on(self) -> None:
        if self.checkpoint.exists():
            saved = json.loads(self.checkpoint.read_text())
            self.seen = saved["seen"]
            self.steps.load_state_dict(saved["steps"])
        self._maybe_killed()
        self.steps.begin(self._save)
        while len(self.seen) < ROWS:
            self._maybe_killed()
            batch = self.steps.next()
            self._maybe_killed()
            self.seen += rows_of(batch)
            self.steps.trained(self._save)
            self._maybe_killed()
            write_whole(self.checkpoint, {"seen": self.seen, "steps": self.steps.state_dict()})
            self._maybe_killed()
        self.steps.end()

    def _save(self, path: Path) -> None:
        self._maybe_killed()
        (path / "seen.json").write_text(json.dumps(self.seen))

    def _maybe_killed(self) -> None:
        if next(self._moments):
            self.run.close()
            raise Killed


def rows_of(batch: Batch) -> list[int]:
    return [group.prompt.instance["row"] for group in batch.groups]


@pytest.fixture
def orchestrator() -> OrchestratorForTrainers:
    return OrchestratorForTrainers()


def steps_on(orchestrator: OrchestratorForTrainers, tmp_path: Path, **settings: Any) -> Steps:
    rows = ({"data_source": "x", "row": number} for number in itertools.count())
    run = TrainingRun(
        orchestrator.take_over(), RunSettings(run_id="run", group_size=2, **settings), rows
    )
    return Steps(run, SIZE, tmp_path / "weights")


def nothing(path: Path) -> None:
    (path / "model.safetensors").touch()


@settings(deadline=None, max_examples=40)
@given(kills=st.lists(st.integers(0, 60), max_size=20))
def test_each_row_is_trained_on_once_wherever_the_trainer_is_killed(
    kills: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("trainer")
    orchestrator = OrchestratorForTrainers()
    for moment in [*kills, None]:
        trainer = FakeTrainer(
            directory, orchestrator, (moment == number for number in itertools.count())
        )
        try:
            trainer.go_on()
        except Killed:
            continue
        break
    assert sorted(trainer.seen) == list(range(ROWS))
    assert not orchestrator.delivered


def test_a_batch_is_acknowledged_after_its_weights_are_published_and_saved(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    first = steps.next()
    assert steps.next() is first
    steps.trained(nothing)
    assert orchestrator.served == steps.version == 2
    assert first.batch_id in orchestrator.delivered
    assert rows_of(steps.next()) == [2, 3]
    assert first.batch_id not in orchestrator.delivered


def test_the_next_batch_is_sampled_meanwhile_unless_no_token_may_be_stale(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    first = steps.next()
    assert len(orchestrator.wanted | orchestrator.delivered) == 2, f"beside {first.batch_id}"
    on_policy = OrchestratorForTrainers()
    steps = steps_on(on_policy, tmp_path, max_staleness=0)
    steps.begin(nothing)
    steps.next()
    assert len(on_policy.wanted | on_policy.delivered) == 1
    steps.trained(nothing)
    assert rows_of(steps.next()) == [2, 3]


def test_only_the_published_checkpoint_is_kept(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    for _ in range(3):
        steps.next()
        steps.trained(nothing)
    assert [path.name for path in (tmp_path / "weights").glob("version-*")] == ["version-4"]
    assert orchestrator.checkpoints[-1] == tmp_path / "weights" / "version-4"


def test_weights_are_never_written_beside_those_of_a_process_that_died_or_was_replaced(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    left = tmp_path / "weights" / "version-1"
    left.mkdir(parents=True)
    (left / "model-00001-of-00002.safetensors").touch()
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    published = orchestrator.checkpoints[-1]
    assert [file.name for file in published.iterdir()] == ["model.safetensors"]
    assert list((tmp_path / "weights").glob("version-*")) == [published]


def test_a_batch_with_tokens_that_are_too_old_is_refused_and_not_acknowledged(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    orchestrator.updates = 3
    with pytest.raises(WeightMismatch, match=r"version 3, .* of version 1: max_staleness is 1"):
        steps.next()
    orchestrator.updates = 2
    assert rows_of(steps.next()) == [0, 1]


def test_a_checkpoint_goes_on_in_a_new_run_without_what_it_was_trained_on(
    orchestrator: OrchestratorForTrainers, tmp_path: Path
) -> None:
    steps = steps_on(orchestrator, tmp_path)
    steps.begin(nothing)
    steps.next()
    steps.trained(nothing)
    state = json.loads(json.dumps(steps.state_dict()))
    new = steps_on(OrchestratorForTrainers(), tmp_path)
    new.load_state_dict(state)
    new.begin(nothing)
    assert rows_of(new.next()) == [2, 3]


def test_steps_come_in_their_order(orchestrator: OrchestratorForTrainers, tmp_path: Path) -> None:
    steps = steps_on(orchestrator, tmp_path)
    with pytest.raises(Conflict, match="no weights are published"):
        steps.next()
    steps.begin(nothing)
    with pytest.raises(Conflict, match="no batch that is trained on"):
        steps.trained(nothing)
