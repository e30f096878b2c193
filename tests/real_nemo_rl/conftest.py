"""A checkout of NeMo-RL, `NEMO_RL_PATH`, on the path, and the example's loss beside it."""

import os
import sys
import typing
from pathlib import Path

import pytest
import typing_extensions

ROOT = Path(__file__).parents[2]
ARITHMETIC = ROOT / "examples" / "arithmetic"

# NeMo-RL asks for Python 3.13: before 3.12 pydantic takes typing_extensions' class alone.
typing.TypedDict = typing_extensions.TypedDict
sys.path[:0] = [os.environ["NEMO_RL_PATH"], str(ARITHMETIC)]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy_dir() -> Path:
    return ARITHMETIC / "policy"
