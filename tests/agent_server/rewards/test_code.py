"""Programs are graded without their environment as well, in a process of `Rewards`."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from agent_server.rewards.local import LocalRewards, LocalRewardSettings
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import GraderFailed

TESTS = '{"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}'


@pytest.fixture(scope="module")
def rewards() -> Iterator[LocalRewards]:
    grader = EntryPoint("code", "agent_server.rewards.code:grade", "rollyard.graders")
    opened = LocalRewards([grader], LocalRewardSettings())
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("```python\nprint(sum(map(int, input().split())))\n```", 1.0),
        ("```python\nprint(3)\n```", 0.0),
        ("print(3)", 0.0),
    ],
)
def test_the_last_program_of_a_response_is_graded_by_its_tests(
    rewards: LocalRewards, response: str, reward: float
) -> None:
    task = ScoreTask(data_source="code", solution_str=response, ground_truth=TESTS)
    assert rewards.score(task).reward == reward


APPS = {"fn_name": "f", "inputs": [[{"-1": 2, "30": 4}]], "outputs": [[29]]}
LIVE = [
    {
        "input": '{"1": 2}',
        "output": "[29]",
        "testtype": "functional",
        "metadata": {"func_name": "f"},
    }
]


@pytest.mark.parametrize(
    ("tests", "body", "reward"),
    [
        (APPS, "sum(d)", 1.0),
        (APPS, "[sum(d)]", 1.0),
        (APPS, "[29, 29]", 0.0),
        (LIVE, "[27 + d['1']]", 1.0),
        (LIVE, "27 + d['1']", 0.0),
    ],
)
def test_only_apps_loses_keys_and_wraps_results(
    rewards: LocalRewards, tests: Any, body: str, reward: float
) -> None:
    response = f"```python\ndef f(d):\n    return {body}\n```"
    task = ScoreTask(data_source="code", solution_str=response, ground_truth=tests)
    assert rewards.score(task).reward == reward


def test_a_program_is_run_by_a_user_without_rights(rewards: LocalRewards) -> None:
    program = "import os\nprint(os.getresuid() == (65534,) * 3, len(os.listdir('/workspace')))"
    tests = {"inputs": [""], "outputs": ["True 2"]}
    response = f"```python\n{program}\n```"
    task = ScoreTask(data_source="code", solution_str=response, ground_truth=tests)
    assert rewards.score(task).reason == "the program passed all 1 tests"


def test_tests_that_cannot_be_used_are_the_tasks_fault(rewards: LocalRewards) -> None:
    task = ScoreTask(data_source="code", solution_str="```\n1\n```", ground_truth="{")
    with pytest.raises(GraderFailed, match="tests of a programming row"):
        rewards.score(task)
