"""NeMo-Gym's own collector drives the agent servers of a deployment with real vLLM."""

import shutil
from pathlib import Path

import pytest

from tests.agent_server.nemo_gym.client import row, sampled
from tests.deployment_fixtures import StartDeployment
from tests.real_doors.collecting import GYM, Collection, read_by_nemo_gym
from tests.real_environments.conftest import StartTheirs

pytestmark = [
    pytest.mark.timeout(900),  # vLLM starts, beside other tests
    pytest.mark.skipif(
        not GYM.exists() and shutil.which("python3.12") is None,
        reason="NeMo-Gym 0.4 needs Python 3.12: then `make nemo-gym` makes its environment",
    ),
]

AGENTS = ("rollyard-0", "rollyard-1")
ROWS = 16
REPEATS = 4


def test_it_collects_all_rollouts_and_each_prompt_begins_with_all_tokens_before_it(
    start_deployment: StartDeployment, tmp_path: Path
) -> None:
    deployment = start_deployment("--nemo-gym-open")
    theirs = StartTheirs(tmp_path)
    try:
        head = theirs("nemo-gym", "nemo_gym_head.py", str(deployment.directory / "nemo-gym.yaml"))
        rows = [
            row(
                f"{number}*{number + 1}",
                str(number * (number + 1)),
                agent_ref={"name": AGENTS[number % 2]},
            )
            for number in range(20, 20 + ROWS)
        ]
        found = Collection(tmp_path, head.url, rows).collect(f"+num_repeats={REPEATS}")
    finally:
        theirs.stop()
    keys = {(each["_ng_task_index"], each["_ng_rollout_index"]) for each in found}
    assert len(keys) == len(found) == ROWS * REPEATS
    assert {each["agent_ref"]["name"] for each in found} == set(AGENTS)
    assert len({each["reward"] for each in found}) > 1
    for each in found:
        assert len(sampled(each["response"]["output"])) == each["turns"]
    assert any(each["turns"] > 1 for each in found)
    read_by_nemo_gym(found)
