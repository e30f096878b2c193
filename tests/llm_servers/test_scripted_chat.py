"""The scripted server's chat completions, which are vLLM's."""

import json
from typing import Any

import pytest
import requests

from llm_servers.scripted.chat import Chat, RenderedChat
from llm_servers.scripted.engine import ScriptedGeneration
from llm_servers.scripted.refusals import BadRequestError
from llm_servers.scripted.script import Vocabulary
from tests.llm_fixtures import POLICY, StartScriptedLLM

VOCABULARY = Vocabulary.load(POLICY)
CHAT = Chat(VOCABULARY)
USER = {"role": "user", "content": "37*48"}
CALL = '<tool_call>\n{"name": "times", "arguments": {"a": 37, "b": 48}}\n</tool_call>'
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "chatcmpl-1-0",
            "type": "function",
            "function": {"name": "times", "arguments": '{"a": 37, "b": 48}'},
        }
    ],
}


def read(*messages: dict[str, Any], **options: Any) -> RenderedChat:
    return CHAT.read(json.dumps({"model": "policy", "messages": messages, **options}).encode())


def answered(text: str, ended: str = "stop") -> dict[str, Any]:
    tokens = VOCABULARY.encode(text)
    drawn = ScriptedGeneration("chatcmpl-1", tokens, [-0.5] * len(tokens), [], False, ended)
    (choice,) = CHAT.write(read(USER), drawn, None)["choices"]
    assert isinstance(choice, dict)
    return choice


def test_a_conversation_is_rendered_with_its_calls_as_the_policy_writes_them() -> None:
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "37"}, {"type": "text", "text": "*48"}],
    }
    result = {"role": "tool", "tool_call_id": "chatcmpl-1-0", "content": "1776"}
    assert VOCABULARY.decode(read(parts, CALLED, result).token_ids) == (
        f"<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n{CALL}<|im_end|>\n"
        "<|im_start|>tool\n1776<|im_end|>\n<|im_start|>assistant\n"
    )


def test_calls_in_a_response_are_told_as_calls_and_read_back_the_same() -> None:
    choice = answered(f"{CALL}<|im_end|>")
    assert (choice["message"], choice["finish_reason"]) == (CALLED, "tool_calls")
    assert VOCABULARY.decode(read(choice["message"]).token_ids).count(CALL) == 1


@pytest.mark.parametrize("text", ["1776", "<tool_call>37*48</tool_call>", "<tool_call>{"])
def test_text_that_is_no_call_stays_text(text: str) -> None:
    choice = answered(f"{text}<|im_end|>")
    assert choice["message"] == {"role": "assistant", "content": text}
    assert choice["finish_reason"] == "stop"


def test_a_call_that_was_cut_off_ends_by_its_length() -> None:
    assert answered(CALL, "length")["finish_reason"] == "length"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"messages": [{"role": 1}]}',
        json.dumps({"messages": [USER], "stream": True}).encode(),
        json.dumps(
            {
                "messages": [
                    {"role": "a", "tool_calls": [{"function": {"name": "x", "arguments": "{"}}]}
                ]
            }
        ).encode(),
    ],
)
def test_a_request_that_cannot_be_rendered_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        CHAT.read(body)


def test_the_server_answers_openais_api_beside_the_token_routes(
    start_scripted_llm: StartScriptedLLM,
) -> None:
    url = start_scripted_llm("--tool-rate", "0")
    body = {"messages": [USER], "logprobs": True, "return_token_ids": True, "max_tokens": 3}
    answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert VOCABULARY.decode(choice["token_ids"]) == choice["message"]["content"]
    assert len(choice["logprobs"]["content"]) == answer["usage"]["completion_tokens"] == 3
    assert answer["prompt_token_ids"] == list(read(USER).token_ids)
