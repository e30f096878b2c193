"""Waiting for a yard's processes: ready, dead or too late, each is said at once."""

import sys
import time
from pathlib import Path

import pytest

from launch.plan import ProcessSpec
from launch.ports import free_ports
from launch.processes import Processes
from launch.yard import start, wait_until_ready
from rollyard.errors import LaunchError


def spec(code: str, ready_seconds: float) -> ProcessSpec:
    return ProcessSpec(
        name="part",
        command=(sys.executable, "-c", code),
        port=free_ports(agent_servers=1, llm_servers=1).orchestrator,
        ready_path="",
        ready_seconds=ready_seconds,
    )


def test_a_process_that_dies_before_it_is_ready_is_not_waited_for(tmp_path: Path) -> None:
    part = spec("raise SystemExit('no disk')", ready_seconds=60)
    began = time.monotonic()
    with Processes() as processes:
        start((part,), tmp_path, processes)
        with pytest.raises(LaunchError, match=r"part ended with code 1 \(no disk\)"):
            wait_until_ready(part, processes)
    assert time.monotonic() - began < 20


def test_a_process_that_does_not_get_ready_is_named(tmp_path: Path) -> None:
    part = spec("import signal; signal.pause()", ready_seconds=0.5)
    with Processes() as processes:
        start((part,), tmp_path, processes)
        with pytest.raises(LaunchError, match=r"part was not ready after 0.5 s"):
            wait_until_ready(part, processes)
