"""NeMo-Gym's contract with an agent server, as its collector and NeMo-RL use it."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from flask.typing import ResponseReturnValue

from tests.agent_server.environments.nemo_gym_server import Counter
from tests.agent_server.environments.nemo_gym_server import row as counter_row
from tests.agent_server.nemo_gym.client import GymClient, row, sampled
from tests.agent_server.nemo_gym.conftest import OpenDoor
from tests.agent_server.prorl.conftest import Overheard
from tests.serving_threads import served


@pytest.fixture
def client(new_door: OpenDoor, llm: str) -> GymClient:
    return new_door(llm)


def fail(llm: str, times: int) -> None:
    fault = {"kind": "error_500", "times": times}
    requests.post(f"{llm}/script/faults", json=fault, timeout=5).raise_for_status()


def test_a_row_is_answered_with_its_reward_and_the_response(client: GymClient) -> None:
    answer = client.run(row())
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["reward"], told["truncated"], told["turns"]) == (1.0, False, 2)
    assert told["responses_create_params"] == row()["responses_create_params"]
    response = told["response"]
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["incomplete_details"] is None
    types = [(item["type"], item["role"]) for item in response["output"]]
    assert types == [("message", "assistant"), ("message", "user"), ("message", "assistant")]
    called, observed, answered = response["output"]
    assert called["content"][0]["text"] == "<tool_call>37*48</tool_call>"
    assert observed["content"] == "1776"
    assert answered["content"][0]["text"] == "1776"


def test_the_items_tokens_are_what_the_model_saw_and_sampled(
    new_door: OpenDoor, overheard: Overheard
) -> None:
    response = new_door(overheard.url).run(row()).json()["response"]
    items = sampled(response["output"])
    told = [(item["prompt_token_ids"], item["generation_token_ids"]) for item in items]
    assert told == [turn for turn in overheard.turns if len(turn[0]) > 1]  # the rest are probes
    for item, logprobs in zip(items, overheard.logprobs[-len(items) :], strict=True):
        assert item["generation_log_probs"] == pytest.approx(logprobs)
    usage = response["usage"]
    assert usage["input_tokens"] == sum(len(prompt) for prompt, _ in told)
    assert usage["output_tokens"] == sum(len(said) for _, said in told)


def test_of_more_rows_than_slots_none_is_refused(client: GymClient) -> None:
    rows = [row(f"{n}*3", str(n * 3 + (n % 3 == 0)), _rowidx=n) for n in range(10, 74)]
    with ThreadPoolExecutor(len(rows)) as pool:
        answers = list(pool.map(client.run, rows))
    assert {answer.status_code for answer in answers} == {200}
    for asked, answer in zip(rows, answers, strict=True):
        told = answer.json()
        sampled(told["response"]["output"])
        said = told["response"]["output"][-1]["content"][0]["text"]
        assert told["reward"] == float(said == asked["answer"])
    assert {answer.json()["reward"] for answer in answers} == {0.0, 1.0}


class FailsOnce(Counter):
    """A resources server that is away when it is to verify for the first time."""

    def verify(self) -> ResponseReturnValue:
        if self.verified:
            return super().verify()
        super().verify()
        return "no disk", 503


def test_a_failure_is_tried_again(client: GymClient) -> None:
    counter = FailsOnce()
    with served(counter.app()) as url:
        answer = client.run(counter_row(url, tools=False, expected_count=0))
    assert (answer.json()["reward"], len(counter.verified)) == (1.0, 2)


def test_what_keeps_failing_is_refused_and_never_a_reward(new_door: OpenDoor, llm: str) -> None:
    client = new_door(llm, seconds=1, attempts=2)
    client.run(row()).raise_for_status()
    fail(llm, times=1000)
    answer = client.run(row())
    assert answer.status_code == 503, answer.text
    assert set(answer.json()) == {"code", "message", "fix"}
    assert "no attempt of 2" in answer.json()["message"]


def test_what_its_row_is_to_blame_for_is_refused_at_once(client: GymClient) -> None:
    asked = row()
    del asked["answer"]
    answer = client.run(asked)
    assert (answer.status_code, "answer" in answer.json()["message"]) == (400, True)


def test_a_trajectory_that_a_limit_ended_is_incomplete(new_door: OpenDoor, llm: str) -> None:
    told = new_door(llm, max_turns=1).run(row()).json()
    assert (told["reward"], told["truncated"], told["turns"]) == (0.0, True, 1)
    response = told["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    sampled(response["output"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data_source": "chess"}, "chess"),
        ({"responses_create_params": None}, "responses_create_params"),
        ({"responses_create_params": {"temperature": -1}}, "temperature"),
        ({"responses_create_params": {"top_p": "all"}}, "top_p"),
        ({"responses_create_params": {"tool_choice": "required"}}, "tool_choice"),
        ({"responses_create_params": {"metadata": {"extra_body": '{"top_k": 5}'}}}, "top_k"),
        ({"responses_create_params": {"metadata": {"extra_body": "[]"}}}, "extra_body"),
    ],
)
def test_a_row_that_cannot_be_obeyed_is_refused_with_a_sentence(
    client: GymClient, change: dict[str, Any], said: str
) -> None:
    answer = client.run(row(**change))
    assert answer.status_code == 400
    assert said in answer.json()["message"]


def test_a_seed_changes_nothing(client: GymClient) -> None:
    metadata = {"metadata": {"extra_body": '{"seed": 3}'}}
    assert client.run(row(responses_create_params=metadata)).status_code == 200


def test_a_row_without_input_gets_the_one_that_the_policy_saw(client: GymClient) -> None:
    told = client.run(row(responses_create_params={})).json()
    (asked,) = told["responses_create_params"]["input"]
    assert (asked["role"], asked["content"]) == ("user", "37*48")


def test_the_collector_learns_where_the_door_is(client: GymClient) -> None:
    config = json.loads(client.get("/global_config_dict_yaml").json())
    place = {"host": "10.0.0.7", "port": 9}
    assert config == {"rollyard": {"responses_api_agents": {"rollyard": place}}}


def test_rewards_are_aggregated_over_all_and_by_task(client: GymClient) -> None:
    answers: list[dict[str, Any]] = [
        {"_ng_task_index": number // 2, "_ng_rollout_index": number % 2, "reward": reward}
        for number, reward in enumerate((0.0, 1.0, 1.0, 1.0))
    ]
    answers[0] |= {"response": {"usage": {"output_tokens": 12}}, "text": "no number"}
    told = client.post("/aggregate_metrics", {"verify_responses": answers}).json()
    assert told["key_metrics"] == {"mean/reward": 0.75, "mean/output_tokens": 12.0}
    assert told["agent_metrics"]["std/reward"] == pytest.approx(0.5)
    by_task = [
        (each["_ng_task_index"], each["mean/reward"]) for each in told["group_level_metrics"]
    ]
    assert by_task == [(0, 0.5), (1, 1.0)]
    empty = client.post("/aggregate_metrics", {"verify_responses": []}).json()
    assert empty == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
