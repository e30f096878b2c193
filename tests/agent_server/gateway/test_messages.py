"""Anthropic's messages over real HTTP, from a client that was written by its description."""

import json
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from tests.agent_server.fakes import Says
from tests.agent_server.gateway.conftest import Client, MakeTask
from tests.agent_server.gateway.rewrites import call

PATH = "/v1/messages"
HI = {"role": "user", "content": "hi"}
LS = {"name": "ls", "input_schema": {"type": "object"}}


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": [HI], **fields}


def events(content: str) -> list[Any]:
    """The events of a stream, each of which is named as its type."""
    said = []
    for each in content.rstrip("\n").split("\n\n"):
        name, data = each.split("\n")
        said.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {said[-1]['type']}"
    return said


def test_a_client_that_calls_tools_leaves_one_trace(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "so" + call("ls"), "done")
    with gateway.open(make_task(policy), StopSignal()) as session:
        client = Client(session)
        first = client.post(PATH, asking(tools=[LS], system="brief")).json()
        text, called = first["content"]
        assert text == {"type": "text", "text": "so"}
        assert (called["type"], called["name"], called["input"]) == ("tool_use", "ls", {})
        assert first["stop_reason"] == "tool_use"
        parts = [{"type": "text", "text": "etc"}]
        result = {"type": "tool_result", "tool_use_id": called["id"], "content": parts}
        said = [
            HI,
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result, {"type": "text", "text": "go on"}]},
        ]
        system = [{"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}}]
        second = client.post(PATH, asking(messages=said, tools=[LS], system=system)).json()
        trajectory = session.trajectory(truncated=False)
    assert second["content"] == [{"type": "text", "text": "done"}]
    assert second["stop_reason"] == "end_turn"
    begin, end = trajectory.turns
    assert second["usage"] == {"input_tokens": end.start, "output_tokens": end.end - end.start}
    assert template.text(trajectory.token_ids[begin.end : end.start]) == (
        "\n<|im_start|>tool\netc<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_stream_says_the_same_in_pieces(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "<think>hm</think>" + call("ls", '{"a": 1}'))
    asked = asking(tools=[LS], stream=True, thinking={"type": "enabled", "budget_tokens": 9})
    with gateway.open(make_task(policy), StopSignal()) as session:
        answer = Client(session).post(PATH, asked)
    begun, *pieces, ended, stop = events(answer.text)
    assert begun["message"]["content"] == []
    blocks = [each["content_block"] for each in pieces if each["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[1]["input"] == {}
    deltas = [each["delta"] for each in pieces if each["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "input_json_delta", "partial_json": '{"a":1}'},
    ]
    assert ended["delta"]["stop_reason"] == "tool_use"
    assert ended["usage"]["output_tokens"] > 1
    assert stop == {"type": "message_stop"}


@pytest.mark.parametrize("thoughts", [[], [{"type": "thinking", "thinking": "hm"}]])
def test_reasoning_may_be_told_again_or_not(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, thoughts: list[Any]
) -> None:
    with gateway.open(
        make_task(Says(template, "<think>hm</think>yes", "no")), StopSignal()
    ) as session:
        client = Client(session)
        first = client.post(PATH, asking()).json()
        assert first["content"] == [{"type": "text", "text": "yes"}]
        said = [HI, {"role": "assistant", "content": [*thoughts, *first["content"]]}, HI]
        client.post(PATH, asking(messages=said))
        trajectory = session.trajectory(truncated=False)
    assert len(trajectory.turns) == 2


REFUSED: dict[str, dict[str, Any]] = {
    "no role 'robot'": {"messages": [{"role": "robot", "content": "hi"}]},
    "last message is the assistant's": {"messages": [HI, {"role": "assistant", "content": "a"}]},
    "type 'image' cannot be shown": {
        "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]
    },
    "texts that end a response": {"stop_sequences": ["x"]},
    "max_tokens must be at least 1": {"max_tokens": 0},
    "tool_choice 'any'": {"tool_choice": {"type": "any"}, "tools": [LS]},
    "is run by nobody here": {"tools": [{"type": "bash_20250124", "name": "bash"}]},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, sentence: str
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        answer = Client(session).post(PATH, asking(**REFUSED[sentence]))
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert sentence in answer.json()["error"]["message"]


def test_another_key_is_refused_in_the_same_form(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template)), StopSignal()) as session:
        client = Client(session)
        client.key = "another"
        answer = client.post(PATH, asking())
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
