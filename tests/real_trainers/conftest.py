"""The example's loss is what trainers' own are compared with: its folder is on the path."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rollyard.client import Client
from rollyard.messages import Batch, RunSettings, Sampling
from rollyard.training_run import TrainingRun
from tests.trainers.sampled import GROUP_SIZE, RandomGroups

ARITHMETIC = Path(__file__).parents[2] / "examples" / "arithmetic"
sys.path.insert(0, str(ARITHMETIC))
GROUPS = 3


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir() -> Path:
    return ARITHMETIC / "policy"


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:9", token="none", show_progress=False) as client:
        yield client


@pytest.fixture
def orchestrator() -> RandomGroups:
    return RandomGroups()


@pytest.fixture
def run(orchestrator: RandomGroups) -> Iterator[TrainingRun]:
    settings = RunSettings(run_id="run", group_size=GROUP_SIZE, sampling=Sampling(temperature=0.7))
    rows = ({"data_source": "x", "row": number} for number in range(100))
    with TrainingRun(orchestrator.take_over(), settings, rows) as run:
        yield run


@pytest.fixture
def batch(run: TrainingRun) -> Batch:
    return run.rollout(GROUPS)
