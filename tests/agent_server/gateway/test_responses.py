"""OpenAI's responses over real HTTP, from a client that was written by its description."""

from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from tests.agent_server.fakes import Says
from tests.agent_server.gateway.conftest import Client, MakeTask
from tests.agent_server.gateway.rewrites import call
from tests.agent_server.gateway.test_messages import events

PATH = "/v1/responses"
HI = {"role": "user", "content": "hi"}
LS = {"type": "function", "name": "ls", "parameters": {"type": "object"}}


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **fields}


@pytest.mark.parametrize("keeps_reasoning", [True, False])
def test_a_client_that_calls_tools_leaves_one_trace(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, keeps_reasoning: bool
) -> None:
    policy = Says(template, "<think>hm</think>" + call("ls"), "done")
    with gateway.open(make_task(policy), StopSignal()) as session:
        client = Client(session)
        asked = asking(tools=[LS], instructions="brief")
        first = client.post(PATH, asked).json()
        thought, called = first["output"]
        assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
        assert (called["type"], called["name"], called["arguments"]) == (
            "function_call",
            "ls",
            "{}",
        )
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "etc"}
        kept = first["output"] if keeps_reasoning else [called]
        second = client.post(PATH, {**asked, "input": [HI, *kept, result]}).json()
        trajectory = session.trajectory(truncated=False)
    assert (first["status"], second["status"]) == ("completed", "completed")
    (message,) = second["output"]
    assert message["content"][0]["text"] == "done"
    begin, end = trajectory.turns
    assert (second["usage"]["input_tokens"], second["usage"]["total_tokens"]) == (
        end.start,
        end.end,
    )
    observed = trajectory.token_ids[begin.end : end.start]
    assert template.text(observed) == "\n<|im_start|>tool\netc<|im_end|>\n<|im_start|>assistant\n"


def test_a_stream_says_the_same_in_pieces(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "so" + call("ls", '{"a": 1}'))
    with gateway.open(make_task(policy), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(tools=[LS], stream=True))
    told = events(answer.text)
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    deltas = [each["delta"] for each in told if each["type"].endswith(".delta")]
    assert deltas == ["so", '{"a":1}']
    done = [each["item"] for each in told if each["type"] == "response.output_item.done"]
    assert told[-1]["type"] == "response.completed"
    assert told[-1]["response"]["output"] == done


def test_a_response_that_was_cut_short_is_incomplete(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template, "a long one")), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(max_output_tokens=3)).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


REFUSED: dict[str, dict[str, Any]] = {
    "no role 'robot'": {"input": [{"role": "robot", "content": "hi"}]},
    "type 'file_search_call' cannot be shown": {"input": [{"type": "file_search_call"}]},
    "type 'input_image' cannot be shown": {
        "input": [{"role": "user", "content": [{"type": "input_image"}]}]
    },
    "no conversation is kept": {"previous_response_id": "resp_1"},
    "in the background": {"background": True},
    "the format 'json'": {"text": {"format": "json"}},
    "a part of the type \"{'type': []}\"": {
        "input": [{"role": "user", "content": [{"type": {"type": []}, "text": "hi"}]}]
    },
    "the format 'json_schema'": {"text": {"format": {"type": "json_schema"}}},
    "type 'web_search' is run by nobody here": {"tools": [{"type": "web_search"}]},
    "tool_choice 'required'": {"tools": [LS], "tool_choice": "required"},
    "max_output_tokens must be at least 1": {"max_output_tokens": 0},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, sentence: str
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(**REFUSED[sentence]))
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]["message"]
