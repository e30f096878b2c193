"""The example's modules are scripts beside each other, so their folder goes on the path."""

import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "arithmetic"
sys.path[:0] = [str(EXAMPLE), str(Path(__file__).parent)]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir() -> Path:
    return EXAMPLE / "policy"
