"""Trajectories as items of a response: calls, reasoning, and pasts that the template wrote anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.protocol import Task
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Opening
from agent_server.nemo_gym.messages import RunAnswer
from agent_server.nemo_gym.rows import task_of
from agent_server.nemo_gym.trajectories import answer
from rollyard.messages import ChatMessage, Grade, Trajectory
from tests.agent_server.environments.nemo_gym_server import QUESTION, Counter
from tests.agent_server.environments.nemo_gym_server import row as counter_row
from tests.agent_server.fakes import EchoEnvironment, Says, make_job
from tests.agent_server.nemo_gym.client import row, sampled
from tests.agent_server.nemo_gym.conftest import OpenDoor
from tests.agent_server.test_split_trajectories import THOUGHT, converse, forgetful
from tests.llm_fixtures import StartScriptedLLM
from tests.serving_threads import served


def answered(directory: Path, *said: str, **grade: Any) -> tuple[Trajectory, RunAnswer]:
    """What a policy said whose template forgets its reasoning when the user speaks again."""
    template = forgetful(directory)
    policy = Says(template, *said)
    trajectory = converse(template, policy)
    task = Task(
        name="job/1",
        job=make_job(),
        opening=Opening(messages=(ChatMessage(role="user", content="hello"),)),
        prompt=(),
        environment=InThread(EchoEnvironment),
        policy=policy,
        template=template,
    )
    return trajectory, answer(row(), Grade(**{"reward": 1.0, **grade}), trajectory, task)


def test_of_several_sequences_the_last_one_has_its_tokens_in_the_items(tmp_path: Path) -> None:
    said = [THOUGHT + "call", THOUGHT + "one", THOUGHT + "two", "bye"]
    trajectory, told = answered(tmp_path, *said)
    (item,) = sampled(told.response.output)
    assert item is told.response.output[-1]
    assert item["prompt_token_ids"] + item["generation_token_ids"] == list(trajectory.token_ids)
    assert [each.token_ids for each in told.response.earlier] == [
        list(each.token_ids) for each in trajectory.earlier
    ]
    assert told.turns == 4


def test_reasoning_is_an_item_of_its_own_and_the_last_item_of_a_turn_has_the_tokens(
    tmp_path: Path,
) -> None:
    _, told = answered(tmp_path, THOUGHT + "call", "bye")
    kinds = [(item["type"], "prompt_token_ids" in item) for item in told.response.output]
    assert kinds == [
        *(("reasoning", False), ("message", True)),
        *(("message", False), ("message", True)),
    ]
    reasoning, message, *_ = told.response.output
    assert reasoning["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert message["content"][0]["text"] == "call"


@pytest.mark.parametrize(("right", "told"), [(0.75, True), (0.5, False)])
def test_parts_of_the_reward_are_told_where_they_sum_up_to_it(
    tmp_path: Path, right: float, told: bool
) -> None:
    parts = {"right": right, "short": 0.25}
    _, answer = answered(tmp_path, "bye", components=parts)
    assert answer.reward_components == (parts if told else {})


def test_rollouts_of_one_task_are_of_one_group() -> None:
    first = task_of(row(_ng_rollout_index=0, _rowidx=0))
    assert first == task_of(row(_ng_rollout_index=1, _rowidx=1))
    assert first != task_of(row("1*1"))
    assert task_of(row(_ng_task_index=3)) == task_of(row("1*1", _ng_task_index=3))


def test_a_row_of_nemo_gyms_own_calls_the_tools_of_its_resources_server(
    new_door: OpenDoor, start_scripted_llm: StartScriptedLLM, tmp_path: Path
) -> None:
    call = '<tool_call>{"name": "add", "arguments": {"count": %d}}</tool_call>'
    said = ["So: " + call % 1, call % 2, "Three."]
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"asks": QUESTION["content"], "scripts": [said]}))
    llm = start_scripted_llm("--replies", str(replies), "--max-model-len", "16384")
    counter = Counter()
    with served(counter.app()) as url:
        asked = counter_row(url, expected_count=3)
        del asked["data_source"]
        answer = new_door(llm).run(asked)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    output = told["response"]["output"]
    assert (told["reward"], told["turns"]) == (1.0, 3)
    assert [item["type"] for item in output] == [
        *("message", "function_call", "function_call_output"),
        *("function_call", "function_call_output", "message"),
    ]
    assert output[0]["content"][0]["text"] == "So:"
    assert output[1]["arguments"] == '{"count": 1}'
    assert output[2]["call_id"] == output[1]["call_id"]
    assert sampled(output) == [output[1], output[3], output[5]]
    assert [tool["name"] for tool in told["response"]["tools"]] == ["add"]
