"""`rollyard restart` ends one process of a deployment, whose launcher starts it again."""

import json
import os
import signal
from pathlib import Path

import pytest

from launch.parts import PartStatus, read_parts
from launch.processes import STOP_SECONDS
from launch.restarts import PartState
from tests.deployment_fixtures import UP_SECONDS, RunningDeployment
from tests.launch.test_up import rollyard

pytestmark = pytest.mark.timeout(UP_SECONDS + STOP_SECONDS)


def part_of(deployment: RunningDeployment, name: str) -> PartStatus:
    (part,) = [each for each in read_parts(deployment.directory) if each.name == name]
    return part


@pytest.mark.parametrize(("name", "hangs"), [("agent-0", False), ("llm-0", True)])
def test_a_part_is_another_process_afterwards_and_ready(
    battered_deployment: RunningDeployment, name: str, hangs: bool
) -> None:
    """One that hangs does not hear that it is to end, and is killed."""
    before = part_of(battered_deployment, name)
    if hangs:
        os.killpg(before.pid, signal.SIGSTOP)
    done = rollyard("restart", name, "--directory", str(battered_deployment.directory), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    after = part_of(battered_deployment, name)
    assert (told["name"], told["pid"], told["state"]) == (name, after.pid, PartState.READY)
    assert after.pid != before.pid
    assert after.restarts == before.restarts + 1
    killed = "was killed by SIGKILL"
    assert (after.reason == killed) is hangs


def test_what_is_not_there_is_not_restarted(
    battered_deployment: RunningDeployment, tmp_path: Path
) -> None:
    unknown = rollyard("restart", "agent-7", "--directory", str(battered_deployment.directory))
    assert "has no part agent-7; it has: redis, orchestrator, llm-0" in unknown.stderr
    nowhere = rollyard("restart", "llm-0", "--directory", str(tmp_path))
    assert f"no rollyard runs in {tmp_path}" in nowhere.stderr
    unset = rollyard("restart", "")
    assert "it is empty" in unset.stderr
    assert (unknown.returncode, nowhere.returncode, unset.returncode) == (1, 1, 2)
