"""A TensorBoard of the demo's, asked over HTTP as a browser asks it."""

import io
from pathlib import Path

import pytest
import requests
import train as example
from board import Board
from display import Display
from fake_rollyard import FakeClient, FakeLLM
from learner import Learner, LearnerConfig
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_each_steps_batch_is_shown_on_this_machine(policy_dir: Path, tmp_path: Path) -> None:
    config = example.TrainConfig(started_at=1.0, requested_batch_size=1, group_size=4, max_steps=2)
    learner = Learner(policy_dir, tmp_path / "checkpoints", LearnerConfig())
    with (
        Display(Console(file=io.StringIO()), config.max_steps) as display,
        Board(tmp_path / "board", Console(file=io.StringIO())) as board,
    ):
        steps = example.train(FakeClient(FakeLLM(policy_dir)), learner, config, display, board)
        assert board.url.startswith("http://127.0.0.1:")
        requests.get(f"{board.url}data/plugins_listing", timeout=20).raise_for_status()
    written = EventAccumulator(str(tmp_path / "board")).Reload()
    names = written.Tags()["scalars"]
    assert {"batch/reward", "run/groups_filtered", "cost/slots", "bias/mean_ratio"} <= {*names}
    losses = [(event.step, event.value) for event in written.Scalars("train/loss")]
    assert losses == [(step.step, pytest.approx(step.loss)) for step in steps]
