"""The public contract of ProRL's agent server, as its clients use it."""

import threading
from typing import Any

import pytest

from agent_server.prorl.calls import RUN_ID
from tests.agent_server.prorl.client import ProrlClient, row
from tests.agent_server.prorl.conftest import OpenDoor, Overheard
from tests.waiting import until


@pytest.fixture
def client(new_door: OpenDoor, llm: str) -> ProrlClient:
    """A client of an open door."""
    client = new_door(llm)
    assert client.post("/start").status_code == 200
    return client


@pytest.fixture
def slow(new_door: OpenDoor, slow_llm: str) -> ProrlClient:
    """A client of an open door behind which everything takes long."""
    client = new_door(slow_llm, slots=1)
    assert client.post("/start").status_code == 200
    return client


def concatenated(messages: list[dict[str, Any]]) -> list[int]:
    return [token for message in messages for token in message["token_ids"]]


def test_a_call_is_answered_with_the_trajectory_and_its_score(client: ProrlClient) -> None:
    answer = client.process(row(trajectory_id=3), job_id="mine")
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["job_id"] == "mine"
    assert (result["instance_id"], result["trajectory_id"]) == ("37*48", 3)
    assert (result["score"], result["resolved"]) == (1.0, True)
    assert (result["success"], result["end_properly"], result["finish"]) == (True, True, True)
    assert (result["error"], result["critical_error"], result["filter"]) == (None, None, False)
    assert result["traceback"] is None
    said = [(message["role"], message["content"]) for message in result["messages"]]
    assert said == [
        ("user", "37*48"),
        ("assistant", "<tool_call>37*48</tool_call>"),
        ("tool", "1776"),
        ("assistant", "1776"),
    ]
    timing = result["timing"]
    stages = timing["init_time"] + timing["run_time"] + timing["eval_time"]
    assert timing["counted_elapsed"] == pytest.approx(stages)
    assert timing["timeout_triggered"] is False


def test_the_messages_tokens_are_what_the_model_saw_and_sampled(
    new_door: OpenDoor, overheard: Overheard
) -> None:
    client = new_door(overheard.url)
    client.post("/start")
    messages = client.process(row()).json()["messages"]
    asked = [
        turn for turn in overheard.turns if len(turn[0]) > 1
    ]  # the others looked at the server
    sampled = [message for message in messages if message["role"] == "assistant"]
    assert [(each["input_ids"], each["token_ids"]) for each in sampled] == asked
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            assert message["input_ids"] == concatenated(messages[:place])
            assert len(message["logprobs"]) == len(message["token_ids"])
        else:
            assert (message["input_ids"], message["logprobs"]) == (None, None)


def test_many_calls_at_once_each_get_their_own_answer(client: ProrlClient) -> None:
    calls = {
        number: client.begin(row(f"{number}*3", str(number * 3), trajectory_id=number))
        for number in range(10, 74)
    }
    for number, call in calls.items():
        result = call.result().json()
        assert (result["instance_id"], result["trajectory_id"]) == (f"{number}*3", number)
        assert result["score"] == 1.0, result
    assert client.jobs() == 0


def test_a_closed_door_takes_nothing_and_opens_and_closes_once(
    new_door: OpenDoor, llm: str
) -> None:
    client = new_door(llm)
    assert client.process(row()).status_code == 503
    assert client.status().status_code == 503
    assert client.post("/cancel", job_id="x").status_code == 503
    assert client.post("/stop").status_code == 503
    assert client.post("/start").json()["status"] == "started"
    assert client.post("/start").status_code == 400
    assert client.post("/stop").status_code == 200
    assert "/start" in client.process(row()).json()["fix"]
    assert client.post("/start").status_code == 200
    assert client.process(row()).status_code == 200


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instance": {"data_source": "chess"}}, "chess"),
        ({"instance": {"data_source": "arithmetic"}, "sampling_params": {"top_k": 5}}, "top_k"),
        ({"sampling_params": {"temperature": -1}}, "temperature"),
        ({"sampling_params": {"max_iterations": 0}}, "max_turns"),
        ({"sampling_params": {"top_p": "all"}}, "top_p"),
        ({"sampling_params": None}, "sampling_params"),
        ({"job_id": ""}, "job_id"),
    ],
)
def test_a_call_that_cannot_be_obeyed_is_refused_with_a_sentence(
    client: ProrlClient, change: dict[str, Any], said: str
) -> None:
    answer = client.process(**{"instance": row(), **change})
    assert answer.status_code == 400
    assert said in answer.json()["message"]


def test_a_row_that_lacks_what_its_environment_needs_has_no_score(client: ProrlClient) -> None:
    result = client.process({"data_source": "arithmetic", "question": "1*1"}).json()
    assert (result["critical_error"], result["score"], result["messages"]) == ("init", None, [])
    assert (result["success"], result["filter"]) == (False, True)
    assert "answer" in result["error"]
    assert result["traceback"].startswith("Traceback (most recent call last):\n")
    assert result["traceback"].endswith(f"EnvironmentFailed: {result['error']}\n")
    assert "/" not in result["traceback"].removesuffix(result["error"] + "\n")


def test_time_that_runs_out_leaves_a_partial_trajectory(new_door: OpenDoor, slow_llm: str) -> None:
    client = new_door(slow_llm, job_seconds=0.8)
    client.post("/start")
    result = client.process(row()).json()
    assert (result["critical_error"], result["filter"]) == ("timeout", True)
    assert result["timing"]["timeout_triggered"] is True
    assert result["end_properly"] is False
    roles = [message["role"] for message in result["messages"]]
    assert roles == ["user", "assistant"]
    assert result["messages"][1]["token_ids"] != []


def test_the_wait_for_a_slot_is_not_counted(slow: ProrlClient) -> None:
    first = slow.begin(row())
    until("the first job runs", lambda: slow.status().json()["run"] == 1)
    second = slow.begin(row("2*3", "6"))
    until("the second waits", lambda: slow.status().json()["pending_jobs"] == 1)
    assert first.result().json()["critical_error"] is None
    timing = second.result().json()["timing"]
    assert timing["others_time"] > 0
    assert timing["timeout_triggered"] is False


def test_a_job_that_is_cancelled_ends_also_while_it_waits(slow: ProrlClient) -> None:
    running = slow.begin(row(), job_id="running")
    until("it runs", lambda: slow.status().json()["run"] == 1)
    waiting = slow.begin(row(), job_id="waiting")
    until("the other waits", lambda: slow.status().json()["pending_jobs"] == 1)
    for name, call in (("waiting", waiting), ("running", running)):
        assert slow.post("/cancel", job_id=name).status_code == 200
        answer = call.result()
        assert answer.status_code == 409
        assert answer.json()["message"] == f"the job '{name}' was cancelled"
    assert slow.post("/cancel", job_id="running").status_code == 404
    assert slow.jobs() == 0


def test_an_id_is_taken_until_its_job_is_answered(slow: ProrlClient) -> None:
    first = slow.begin(row(), job_id="mine")
    until("it is there", lambda: slow.jobs() == 1)
    again = slow.process(row(), job_id="mine")
    assert again.status_code == 409
    assert "'mine'" in again.json()["message"]
    slow.post("/cancel", job_id="mine")
    first.result()
    until("its id is free", lambda: slow.jobs() == 0)
    other = slow.begin(row(), job_id="mine")
    until("it is there", lambda: slow.jobs() == 1)
    slow.post("/stop")
    assert other.result().status_code == 503


def test_a_full_door_says_so(new_door: OpenDoor, slow_llm: str) -> None:
    client = new_door(slow_llm, slots=1, most_calls=2)
    client.post("/start")
    calls = [client.begin(row()) for _ in range(2)]
    until("they are there", lambda: client.jobs() == 2)
    refused = client.process(row())
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    client.post("/stop")
    assert [call.result().status_code for call in calls] == [503, 503]


def test_stop_ends_every_job_and_names_it(slow: ProrlClient) -> None:
    calls = [slow.begin(row(), job_id=name) for name in ("a", "b")]
    until("they are there", lambda: slow.jobs() == 2)
    said = slow.post("/stop").json()
    assert (said["status"], sorted(said["ended"]), said["ending"]) == ("stopped", ["a", "b"], [])
    for call in calls:
        assert call.result().status_code == 503
    assert not [each.name for each in threading.enumerate() if each.name.startswith(RUN_ID)]
    slow.post("/start")
    assert slow.jobs() == 0


def test_llm_servers_that_a_caller_brings_take_the_place_of_the_own_ones(
    new_door: OpenDoor, slow_llm: str, overheard: Overheard
) -> None:
    client = new_door(slow_llm)
    for _ in range(2):
        client.post("/add_llm_server", address=f"{overheard.url}/v1")
    client.post("/start")
    assert client.process(row()).json()["score"] == 1.0
    assert overheard.turns != []
    client.post("/clear_llm_server")
    without = client.process(row())
    assert without.status_code == 503
    assert "no LLM servers" in without.json()["message"]
    client.post("/add_llm_server", address=overheard.url)
    assert client.process(row()).status_code == 200
    assert client.post("/add_llm_server", address="nonsense").status_code == 400
