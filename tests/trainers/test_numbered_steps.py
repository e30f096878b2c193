"""Trainers that number their steps, and write checkpoints without asking: verl's, of them all."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rollyard.errors import Conflict
from tests.trainers.adapters.verl import ADAPTER
from tests.trainers.orchestrator import Orchestrator
from tests.trainers.process import Killed
from tests.trainers.training import Training


@pytest.fixture
def training(tmp_path: Path, policy_dir: Path) -> Training:
    return Training(ADAPTER, Orchestrator(), tmp_path, policy_dir)


def test_a_checkpoint_is_no_place_to_go_on_from_without_what_was_written_down_beside_it(
    training: Training,
) -> None:
    """The Batch of its step is not acknowledged, and would be trained on again."""
    with suppress(Killed):
        training.run_process(("before post ack", 0))
    assert len(training.trained) == 1
    shutil.rmtree(training.directory / "weights")
    with pytest.raises(Conflict, match=r"step 1 .*trained-1.json.*; .* or another run_id"):
        training.run_process()
    assert len(training.trained) == 1
    assert not training.orchestrator.runs["run"].acknowledged
