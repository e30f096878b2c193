"""The lock of a deployment's directory: its holder is known at any moment."""

import subprocess
import sys
from pathlib import Path

import pytest

from launch.detached import down
from rollyard.errors import LaunchError
from tests.llm_fixtures import ROOT

STARTS_AND_ENDS = """
import os, sys
from pathlib import Path
from launch.lock import holder, locked

directory = Path(sys.argv[1])
for _ in range(300):
    launcher = os.fork()
    if launcher == 0:
        with locked(directory):
            os._exit(0)
    while (ended := os.waitpid(launcher, os.WNOHANG)) == (0, 0):
        assert holder(directory) in (None, launcher)
    assert ended == (launcher, 0), "it was refused"
"""


def test_whoever_asks_for_the_holder_neither_hears_of_an_earlier_one_nor_is_in_its_way(
    tmp_path: Path,
) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", STARTS_AND_ENDS, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr


def test_a_launcher_of_another_container_is_not_stopped_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.detached.holder", lambda _: 0)  # as the kernel names it
    with pytest.raises(LaunchError, match="another container"):
        down(tmp_path)
