"""OpenAI's chat completions over real HTTP, from a client that was written by its description."""

import json
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from rollyard.messages import ToolCall, ToolSchema
from tests.agent_server.fakes import Says
from tests.agent_server.gateway.conftest import Client, MakeTask
from tests.agent_server.gateway.rewrites import call

PATH = "/v1/chat/completions"
HI = {"role": "user", "content": "hi"}
LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [HI], **fields}


def chunks(content: str) -> list[Any]:
    """The events of a stream, which ends as streams do."""
    *events, last, empty = content.split("\n\n")
    assert (last, empty) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_client_that_calls_tools_leaves_one_trace(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "<think>hm</think>" + call("ls", '{"a": 1}'), "done")
    with gateway.open(make_task(policy), StopSignal()) as session:
        client = Client(session)
        first = client.post(PATH, asking(tools=[LS])).json()
        (choice,) = first["choices"]
        said = choice["message"]
        assert (choice["finish_reason"], said["content"]) == ("tool_calls", None)
        assert said["reasoning_content"] == "hm"
        (called,) = said["tool_calls"]
        assert called["function"] == {"name": "ls", "arguments": '{"a":1}'}
        result = {"role": "tool", "content": "etc", "tool_call_id": called["id"]}
        del said["reasoning_content"]
        second = client.post(PATH, asking(messages=[HI, said, result], tools=[LS])).json()
        trajectory = session.trajectory(truncated=False)
    assert second["choices"][0]["message"]["content"] == "done"
    assert second["choices"][0]["finish_reason"] == "stop"
    assert len(trajectory.turns) == 2
    begin, end = trajectory.turns
    assert second["usage"] == {
        "prompt_tokens": end.start,
        "completion_tokens": end.end - end.start,
        "total_tokens": end.end,
    }
    observed = trajectory.token_ids[begin.end : end.start]
    assert template.text(observed) == "\n<|im_start|>tool\netc<|im_end|>\n<|im_start|>assistant\n"
    kept = ToolCall(call_id=called["id"], name="ls", arguments={"a": 1})
    assert trajectory.messages[1].tool_calls == (kept,)


def test_a_stream_says_the_same_in_pieces(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "so" + call("ls"))
    asked = asking(tools=[LS], stream=True, stream_options={"include_usage": True})
    with gateway.open(make_task(policy), StopSignal()) as session:
        answer = Client(session).post(PATH, asked)
    assert answer.headers["Content-Type"] == "text/event-stream"
    *said, usage = chunks(answer.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in said]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[1] == {"content": "so"}
    (called,) = deltas[2]["tool_calls"]
    assert (called["index"], called["function"]) == (0, {"name": "ls", "arguments": "{}"})
    assert said[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert {chunk["id"] for chunk in said} == {usage["id"]}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(template.encode("so" + call("ls"))) + 1


def test_choices_are_of_one_prompt_and_come_with_their_logprobs(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "yes", "yes")
    with gateway.open(make_task(policy), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(n=2, logprobs=True)).json()
        trajectory = session.trajectory(truncated=False)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        told = choice["logprobs"]["content"]
        assert "".join(token["token"] for token in told) == "yes<|im_end|>"
        assert {token["logprob"] for token in told} == {-0.5}
    first, second = policy.requests
    assert first.token_ids == second.token_ids
    assert len(trajectory.sequences) == 2


def test_how_responses_are_sampled_is_the_jobs_to_say(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "yes")
    wish = asking(temperature=0.1, top_p=0.5, seed=7, max_completion_tokens=9)
    with gateway.open(make_task(policy), StopSignal()) as session:
        assert Client(session).post(PATH, wish).status_code == 200
    assert policy.requests[0].sampling.temperature == 1.0
    assert policy.requests[0].max_tokens == 9


def test_calls_are_text_where_none_are_wanted(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template, call("ls"))), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(tools=[LS], tool_choice="none")).json()
    assert answer["choices"][0]["message"]["content"] == call("ls")
    assert answer["choices"][0]["finish_reason"] == "stop"


REFUSED: dict[str, dict[str, Any]] = {
    "no role 'robot'": {"messages": [{"role": "robot", "content": "hi"}]},
    "no messages": {"messages": []},
    "last message is the assistant's": {"messages": [HI, {"role": "assistant", "content": "a"}]},
    "type 'image_url' cannot be shown": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    },
    "Expected `array`": {"messages": "hi"},
    "texts that end a response": {"stop": ["\n"]},
    "n must be in 1..16": {"n": 17},
    "max_tokens must be at least 1": {"max_tokens": -1},
    "tool_choice 'required'": {"tool_choice": "required", "tools": [LS]},
    "tool_choice 'function'": {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
    "response_format 'json_object'": {"response_format": {"type": "json_object"}},
    "top_logprobs": {"logprobs": True, "top_logprobs": 5},
    "functions are an older form": {"functions": [{"name": "ls"}]},
    "arguments of the call of 'ls' are no JSON object": {
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [{"id": "x", "function": {"name": "ls", "arguments": "{"}}],
            },
            HI,
        ]
    },
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, sentence: str
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(**REFUSED[sentence]))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert sentence in error["message"]
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"


def test_tools_reach_the_prompt(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "yes")
    with gateway.open(make_task(policy), StopSignal()) as session:
        Client(session).post(PATH, asking(tools=[LS]))
    schema = ToolSchema(name="ls", description="", parameters={"type": "object"})
    shown = template.text(policy.requests[0].token_ids)
    assert json.dumps(schema.as_function()) in shown
