"""The example's loss is what trainers' own are compared with: its folder is on the path."""

import os
import sys
from pathlib import Path

import pytest
import torch

ARITHMETIC = Path(__file__).parents[2] / "examples" / "arithmetic"
sys.path.insert(0, str(ARITHMETIC))
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir() -> Path:
    return ARITHMETIC / "policy"
