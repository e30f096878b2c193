"""The example's loss is what trainers' own are compared with: the examples are on the path."""

import os
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
ARITHMETIC = EXAMPLES / "arithmetic"
sys.path[:0] = [str(ARITHMETIC), str(EXAMPLES / "trl")]
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir() -> Path:
    return ARITHMETIC / "policy"
