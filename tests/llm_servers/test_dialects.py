"""What the dialects make of answers, without a server: ends, versions, kinds of logprobs."""

import json
from typing import Any

import msgspec
import pytest

from llm_servers.dialects.prorl import PRORL
from llm_servers.dialects.protocol import LLMDialect
from llm_servers.dialects.sglang import SGLANG
from llm_servers.dialects.vllm_completions import VLLM_COMPLETIONS
from llm_servers.generation import Generation, LLMBroken, TurnRequest
from llm_servers.responses import checked
from rollyard.messages import LogprobKind, Sampling, WeightSpan

REQUEST = TurnRequest(
    trajectory="t",
    group="g",
    token_ids=(1, 2, 3),
    sampling=Sampling(temperature=0.7, top_p=0.9),
    max_tokens=4,
    stop_token_ids=(9, 8),
)


def read(dialect: LLMDialect, answer: dict[str, Any], **known: Any) -> Generation:
    return checked(dialect.read(json.dumps(answer).encode(), REQUEST), REQUEST, **known)


def prorl(*tokens: int) -> dict[str, Any]:
    return {"response_ids": tokens, "logprobs": [-0.5] * len(tokens)}


def sglang(*tokens: int, ended: str = "stop", **meta: Any) -> dict[str, Any]:
    told = [[-0.5, token, None] for token in tokens]
    finish = {"type": ended, "matched": tokens[-1]}
    meta_info = {"output_token_logprobs": told, "finish_reason": finish, "prompt_tokens": 3}
    return {"text": "", "output_ids": tokens, "meta_info": meta_info | meta}


@pytest.mark.parametrize(
    ("tokens", "kept", "ended"),
    [
        ((5, 9), (5, 9), "stop"),
        ((5, 9, 6, 7), (5, 9), "stop"),
        ((8, 9), (8,), "stop"),
        ((5, 6, 7, 9), (5, 6, 7, 9), "stop"),
        ((5, 6, 7, 4), (5, 6, 7, 4), "length"),
        ((5, 9, 6, 7, 4, 3), (5, 9), "stop"),
    ],
)
def test_a_server_that_says_nothing_of_ends_is_cut_at_the_first_stop_token(
    tokens: tuple[int, ...], kept: tuple[int, ...], ended: str
) -> None:
    said = read(PRORL, prorl(*tokens))
    assert (said.token_ids, said.finish_reason) == (kept, ended)
    assert said.logprobs == (-0.5,) * len(kept)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (prorl(5, 6), "its last token is none of those that end a response"),
        (prorl(5, 6, 7, 4, 3), "5 tokens, 4 allowed"),
        (prorl(), "no tokens"),
        (prorl(5, 9) | {"logprobs": [-0.5]}, "1 logprobs for 2 tokens"),
        (prorl(5, 9) | {"logprobs": None}, "0 logprobs for 2 tokens"),
        (prorl(5, 9) | {"logprobs": [-0.5, None]}, "NaN"),
        ({"response": [5, 9]}, "unknown shape"),
    ],
)
def test_what_a_prorl_server_leaves_open_is_refused(answer: dict[str, Any], problem: str) -> None:
    with pytest.raises(LLMBroken, match=problem):
        read(PRORL, answer)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (sglang(5, 6), "its last token is none of those that end a response"),
        (sglang(9, 5, ended="length"), "goes on behind a token that ends a response"),
        (sglang(5, 9, prompt_tokens=2), "saw 2 prompt tokens, 3 were sent"),
        (sglang(5, 9) | {"output_ids": [5, 6]}, "of other tokens than its response"),
        (sglang(5, 9, output_token_logprobs=[[None, 5, None], [-1, 9, None]]), "NaN"),
    ],
)
def test_what_an_sglang_server_answers_is_checked(answer: dict[str, Any], problem: str) -> None:
    with pytest.raises(LLMBroken, match=problem):
        read(SGLANG, answer)


def test_a_completion_without_token_ids_is_refused() -> None:
    answer = {"choices": [{"text": "six", "finish_reason": "stop", "logprobs": None}]}
    with pytest.raises(LLMBroken, match="text alone, no token ids"):
        read(VLLM_COMPLETIONS, answer)


def test_a_version_that_nobody_told_is_the_one_published_last_and_marked() -> None:
    (span,) = read(PRORL, prorl(5, 9), published=7).weight_spans
    assert span == WeightSpan(version=7, start=0, end=2, assumed=True)


@pytest.mark.parametrize(
    ("told", "published", "version", "assumed"),
    [("7", 7, 7, False), ("8", 7, 7, True), ("6", 7, 6, True), ("default", 7, 7, True)],
)
def test_the_version_at_the_end_counts_if_the_response_began_under_it(
    told: str, published: int, version: int, assumed: bool
) -> None:
    (span,) = read(SGLANG, sglang(5, 9, weight_version=told), published=published).weight_spans
    assert (span.version, span.assumed) == (version, assumed)


def test_parts_of_different_origin_stay_apart() -> None:
    part = read(PRORL, prorl(5, 6, 7, 4), published=7)
    told = read(SGLANG, sglang(5, 9, weight_version="7"), published=7)
    raw = read(PRORL, prorl(5, 9), published=7, logprobs=LogprobKind.MODEL)
    spans = part.followed_by(part).followed_by(told).followed_by(raw).weight_spans
    assert [(span.start, span.end) for span in spans] == [(0, 8), (8, 10), (10, 12)]
    assert [span.assumed for span in spans] == [True, False, True]
    assert spans[-1].logprobs is LogprobKind.MODEL


def test_a_span_that_was_told_is_as_short_on_the_wire_as_ever() -> None:
    span = WeightSpan(version=3, start=0, end=2)
    assert msgspec.to_builtins(span) == {"version": 3, "start": 0, "end": 2}


def test_no_request_of_sglang_is_aborted_with_another() -> None:
    """It aborts all requests whose ids begin like the one that is named."""
    bodies = [SGLANG.abort(request_id).body for request_id in ("t-a1-1", "t-a1-12")]
    first, second = (msgspec.to_builtins(body)["rid"] for body in bodies)
    assert not second.startswith(first)


def test_each_sample_of_a_prorl_server_has_a_seed_of_its_own() -> None:
    bodies = [PRORL.generate(REQUEST, request_id).body for request_id in ("t-1", "t-2")]
    first, second = (msgspec.to_builtins(body)["seed"] for body in bodies)
    assert first != second
