"""The pods of a fleet, on a machine of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.machine import Pods, rendered


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "machine"
    path.mkdir()
    return path


@pytest.fixture
def pods(directory: Path) -> Iterator[Pods]:
    """Two nodes with GPUs, two without, and the head; nothing runs yet."""
    fleet = rendered(
        "render",
        *("--image", "rollyard", "--llm", "scripted", "--slots", "4"),
        *("--gpu-nodes", "2", "--gpus-per-node", "2", "--tensor-parallel", "2"),
        *("--cpu-nodes", "2", "--start-seconds", "120"),
    )
    made = Pods(fleet + rendered("secret"), directory)
    yield made
    made.end()
