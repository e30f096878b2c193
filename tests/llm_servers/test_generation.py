"""Reading what an LLM server answers: used whole, or not at all."""

import json
from typing import Any

import msgspec
import pytest

from llm_servers.dialects.vllm_tokens import VLLM_TOKENS
from llm_servers.generation import Generation, LLMBroken, TurnRequest, Unanswered, Unlabelled
from llm_servers.responses import checked
from rollyard.messages import Sampling, WeightSpan

REQUEST = TurnRequest(
    trajectory="t",
    group="g",
    token_ids=(1, 2, 3),
    sampling=Sampling(temperature=0.7, top_p=0.9),
    max_tokens=4,
    stop_token_ids=(9,),
)


def read_generation(content: bytes, request: TurnRequest) -> Generation:
    return checked(VLLM_TOKENS.read(content, request), request)


def answer(**changes: Any) -> bytes:
    """A good answer of two tokens, but for `changes` to its choice."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "stop",
        "token_ids": [5, 9],
        "logprobs": {
            "content": [
                {"token_id": 5, "logprob": -1.5, "rank": 1},
                {"token_id": 9, "logprob": -0.25, "rank": 2},
            ]
        },
        "weight_versions": [
            {"version": "3", "start": 0, "end": 1},
            {"version": "4", "start": 1, "end": 2},
        ],
    }
    body = {"choices": [choice | changes], "usage": {"prompt_tokens": 3}, "kv_transfer_params": {}}
    return json.dumps(body).encode()


def logprobs(*values: float) -> dict[str, Any]:
    return {"content": [{"token_id": 5, "logprob": value} for value in values]}


def test_a_good_answer_is_read() -> None:
    generation = read_generation(answer(), REQUEST)
    assert generation.token_ids == (5, 9)
    assert generation.logprobs == (-1.5, -0.25)
    assert generation.finish_reason == "stop"
    assert generation.weight_spans == (
        WeightSpan(version=3, start=0, end=1),
        WeightSpan(version=4, start=1, end=2),
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"logprobs": logprobs(float("nan"), -1.0)}, "NaN"),
        ({"logprobs": logprobs(float("-inf"), -1.0)}, "NaN"),
        ({"logprobs": logprobs(-9999.0, -1.0)}, "NaN"),
        ({"logprobs": logprobs(-1.0)}, "1 logprobs for 2 tokens"),
        ({"logprobs": None}, "0 logprobs for 2 tokens"),
        ({"logprobs": {"content": [{"token_id": 5, "logprob": None}] * 2}}, "unknown shape"),
        ({"token_ids": [], "logprobs": logprobs(), "weight_versions": []}, "no tokens"),
        ({"token_ids": [5] * 5, "logprobs": logprobs(*[-1.0] * 5)}, "5 tokens, 4 allowed"),
        ({"token_ids": [-1, 9]}, "negative token id"),
        ({"token_ids": [9, 5]}, "its last token is none of those that end a response"),
        ({"token_ids": [9, 9]}, "goes on behind a token that ends a response"),
        ({"finish_reason": "error"}, "unknown reason"),
        ({"weight_versions": None}, "weight versions leave tokens out"),
        ({"weight_versions": [{"version": "3", "start": 0, "end": 1}]}, "leave tokens out"),
    ],
)
def test_a_wrong_answer_is_broken_and_says_how(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(LLMBroken, match=problem):
        read_generation(answer(**changes), REQUEST)


@pytest.mark.parametrize("label", ["default", "latest", "-1"])
def test_weights_without_a_version_are_waited_for(label: str) -> None:
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": label, "start": 1, "end": 2}]
    with pytest.raises(Unlabelled, match=f"no version yet: it calls them '{label}'"):
        read_generation(answer(weight_versions=spans), REQUEST)


def test_weight_versions_that_go_down_may_be_asked_for_again() -> None:
    newer = msgspec.structs.replace(REQUEST, min_version=4)
    with pytest.raises(Unanswered, match="weight version 3 comes after version 4"):
        read_generation(answer(), newer)
    falls = [{"version": "4", "start": 0, "end": 1}, {"version": "3", "start": 1, "end": 2}]
    with pytest.raises(Unanswered, match="weight version 3 comes after version 4"):
        read_generation(answer(weight_versions=falls), REQUEST)


def test_a_response_goes_on_where_it_was_interrupted() -> None:
    said = read_generation(answer(finish_reason="abort"), REQUEST)
    rest = REQUEST.after(said)
    assert (tuple(rest.token_ids), rest.max_tokens, rest.min_version) == ((1, 2, 3, 5, 9), 2, 4)
    more = [{"version": "4", "start": 0, "end": 1}, {"version": "6", "start": 1, "end": 2}]
    whole = said.followed_by(read_generation(answer(weight_versions=more, usage=None), REQUEST))
    assert whole.token_ids == (5, 9, 5, 9)
    assert whole.logprobs == (-1.5, -0.25, -1.5, -0.25)
    assert [(span.version, span.start, span.end) for span in whole.weight_spans] == [
        (3, 0, 1),
        (4, 1, 3),
        (6, 3, 4),
    ]
    assert whole.finish_reason == "stop"


def test_a_prompt_that_the_server_saw_otherwise_is_broken() -> None:
    body = json.loads(answer())
    body["usage"]["prompt_tokens"] = 2
    with pytest.raises(LLMBroken, match="saw 2 prompt tokens, 3 were sent"):
        read_generation(json.dumps(body).encode(), REQUEST)


def test_half_an_answer_may_be_asked_for_again() -> None:
    with pytest.raises(Unanswered):
        read_generation(answer()[:40], REQUEST)


def test_an_aborted_request_may_have_no_tokens() -> None:
    nothing: dict[str, Any] = {"token_ids": [], "logprobs": logprobs(), "weight_versions": None}
    generation = read_generation(answer(finish_reason="abort", **nothing), REQUEST)
    assert generation.token_ids == ()


def test_the_request_states_all_that_shapes_the_distribution() -> None:
    body = msgspec.json.decode(msgspec.json.encode(VLLM_TOKENS.generate(REQUEST, "id").body))
    assert body["request_id"] == "id"
    assert body["token_ids"] == [1, 2, 3]
    sampling = body["sampling_params"]
    assert (sampling["temperature"], sampling["top_p"]) == (0.7, 0.9)
    assert (sampling["top_k"], sampling["min_p"], sampling["repetition_penalty"]) == (0, 0.0, 1.0)
    assert (sampling["max_tokens"], sampling["stop_token_ids"]) == (4, [9])
    assert sampling["ignore_eos"], "or the server adds stop tokens of its own"


@pytest.mark.parametrize("end", [7, 9])
def test_a_response_aborted_behind_any_stop_token_has_ended(end: int) -> None:
    request = msgspec.structs.replace(REQUEST, stop_token_ids=(9, 7))
    said = read_generation(answer(finish_reason="abort", token_ids=[5, end]), request)
    assert said.ended_by(request).finish_reason == "stop"
