"""A DAPO run over environments of three packages: queues, an agent server, scripted policies."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.free_ports import free_port
from rollyard.client import Client
from rollyard.messages import Batch
from tests.e2e.test_every_environment import TEMPLATE, call
from tests.faults.conftest import MakeDeployment, make_deployment
from tests.llm_fixtures import POLICY, StartScriptedLLM, start_module
from tests.real_environments.conftest import StartTheirs
from tests.real_environments.test_nemo_gym import COUNTER, row
from tests.real_environments.test_textarena import TOWERS

__all__ = ["make_deployment"]

Scripts = tuple[tuple[str, ...], tuple[str, ...]]


@pytest.fixture(scope="module")
def cases(theirs: StartTheirs) -> dict[str, tuple[dict[str, Any], str, Scripts]]:
    """Rows, each with words of its conversation, a script that solves it and one that does not."""
    count = [call("increment_counter", count=number) for number in (1, 2)]
    guess = {"url": theirs.openenv("guess").url, "question": "Guess.", "observation": "prompt"}
    return {
        "openenv": (guess, "Guess.", (("5", "4"), ("1", "2", "3"))),
        "nemo_gym": (
            row(theirs.nemo_gym(*COUNTER), COUNTER[0]),
            "add 1 then add 2",
            ((*count, "Done."), (count[0], "Done.")),
        ),
        "textarena": (
            {"env_id": "TowerOfHanoi-v0"},
            "Tower of Hanoi",
            (TOWERS, ("I cannot.", "I cannot.")),
        ),
    }


@pytest.fixture
def batch(
    tmp_path: Path,
    cases: dict[str, tuple[dict[str, Any], str, Scripts]],
    make_deployment: MakeDeployment,
    start_scripted_llm: StartScriptedLLM,
) -> Iterator[Batch]:
    model, replies = tmp_path / "policy", tmp_path / "replies.jsonl"
    shutil.copytree(POLICY, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    lines = ({"asks": asks, "scripts": scripts} for _, asks, scripts in cases.values())
    replies.write_text("".join(json.dumps(line) + "\n" for line in lines))
    llm = start_scripted_llm("--replies", str(replies), "--max-model-len", "16384", model=model)
    deployment = make_deployment(agent_servers=0, lease_seconds=30.0)
    deployment.start_services()
    url = deployment.cluster.door_url
    agent = start_module(
        [
            *("agent_server", "--port", str(free_port()), "--server-id", "agent"),
            *("--orchestrator", url, "--llm-server", llm, "--model", str(model), "--slots", "4"),
        ],
        tmp_path / "agent.log",
    )
    rows = [{**row, "data_source": name} for name, (row, *_) in cases.items()] * 4
    try:
        with Client(url) as client:
            run = client.run(rows, run_id="theirs", group_size=6)
            yield run.rollout(6)
            run.finish()
    finally:
        agent.kill()


def test_every_group_of_a_batch_is_of_both_kinds(
    batch: Batch, cases: dict[str, tuple[dict[str, Any], str, Scripts]]
) -> None:
    assert {group.prompt.data_source for group in batch.groups} == set(cases)
    for group in batch.groups:
        _, _, (right, _) = cases[group.prompt.data_source]
        assert {result.reward for result in group.results} == {0.0, 1.0}
        for result in group.results:
            assert result.trajectory is not None
            messages = result.trajectory.messages
            said = tuple(each.content for each in messages if each.role == "assistant")
            assert result.reward == float(said == right)
