"""Waiting for a deployment's processes: ready, dead or too late, each is said at once."""

import re
import sys
import time
from pathlib import Path

import pytest

from launch.free_ports import free_port
from launch.local import start
from launch.process_spec import ProcessSpec
from launch.processes import Processes
from rollyard.errors import LaunchError


def spec(code: str, ready_seconds: float) -> ProcessSpec:
    return ProcessSpec(
        kind="parts",
        name="part",
        command=(sys.executable, "-c", code),
        port=free_port(),
        ready_path="",
        ready_seconds=ready_seconds,
    )


def test_a_process_that_dies_before_it_is_ready_is_not_waited_for(tmp_path: Path) -> None:
    part = spec("raise SystemExit('no disk')", ready_seconds=60)
    began = time.monotonic()
    no_disk = pytest.raises(LaunchError, match=r"part ended with code 1 \(no disk\)")
    with Processes() as processes, no_disk:
        start((part,), tmp_path, processes)
    assert time.monotonic() - began < 20


def test_a_process_that_is_not_ready_in_time_is_named_with_what_it_did(tmp_path: Path) -> None:
    working = "print('loading shard 7', flush=True)\nwhile True: sum(range(1000))"
    part = spec(working, ready_seconds=3.0)
    told: list[str] = []
    too_late = pytest.raises(LaunchError, match=r"part was not ready after 3 s, in which")
    with Processes() as processes, too_late as late:
        start((part,), tmp_path, processes, told.append)
    assert re.search(r"it computed for \d+ s and last said: loading shard 7$", late.value.message)
    assert "give it longer with --start-seconds" in late.value.fix
    assert told[0].startswith("waiting for part for 0 s")
    assert re.fullmatch(r"waiting for part for \d s; it says: loading shard 7", told[-1])
