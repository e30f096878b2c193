"""The contract that agents and the control service rely on, kept by vLLM and the stand-in alike."""

import concurrent.futures
import itertools
from array import array
from pathlib import Path
from typing import Any

import pytest
import requests

from llm_servers.scripted.script import Vocabulary
from tests.llm_fixtures import MANY_ENDS, POLICY, FirstWords
from tests.llm_servers.conftest import DEADLINE_SECONDS, LLM

pytestmark = pytest.mark.timeout(360)  # the first test waits for vLLM to start

ABORT = "/inference/v1/abort_requests"


def logprobs(choice: dict[str, Any]) -> list[float]:
    content = choice["logprobs"]["content"]
    assert [entry["token_id"] for entry in content] == choice["token_ids"]
    return [entry["logprob"] for entry in content]


def versions(choice: dict[str, Any]) -> list[str]:
    """The version of each token; the spans must tile the response."""
    found: list[str] = []
    for span in choice["weight_versions"]:
        assert span["start"] == len(found)
        found += [span["version"]] * (span["end"] - span["start"])
    assert len(found) == len(choice["token_ids"])
    return found


def test_token_ids_logprobs_and_weight_versions_come_out(llm: LLM) -> None:
    version = str(llm.control.version())
    choice = llm.generate(max_tokens=32, temperature=1.0)
    assert 1 <= len(choice["token_ids"]) <= 32
    assert all(-9999.0 < value <= 0.0 for value in logprobs(choice))
    assert set(versions(choice)) == {version}


def test_weights_that_nobody_labelled_are_called_default(said_first: FirstWords) -> None:
    """So are those of a server that was started again: that is how its node notices."""
    assert said_first.label == "default"
    assert {span["version"] for span in said_first.spans} == {"default"}


def test_the_context_length_is_told_and_holds(llm: LLM) -> None:
    (model,) = requests.get(f"{llm.url}/v1/models", timeout=DEADLINE_SECONDS).json()["data"]
    too_long = {"token_ids": [1] * model["max_model_len"], "sampling_params": {"max_tokens": 1}}
    assert llm.post("/inference/v1/generate", too_long).status_code == 400


def test_greedy_generation_repeats_itself(llm: LLM) -> None:
    first, second = (llm.generate(max_tokens=32, temperature=0.0) for _ in range(2))
    assert first["token_ids"] == second["token_ids"]
    assert logprobs(first) == pytest.approx(logprobs(second), abs=1e-5)


def test_samples_differ_from_each_other(llm: LLM) -> None:
    samples = [llm.generate(max_tokens=32, temperature=1.0)["token_ids"] for _ in range(20)]
    assert len({tuple(sample) for sample in samples}) > 1


def test_a_seed_repeats_a_sample(llm: LLM) -> None:
    first, second = (llm.generate(max_tokens=32, temperature=1.0, seed=5) for _ in range(2))
    assert first["token_ids"] == second["token_ids"]


def test_scoring_a_generated_sequence_gives_its_logprobs(llm: LLM) -> None:
    choice = llm.generate(max_tokens=48, temperature=1.0, ignore_eos=True)
    sequence = array("i", [*llm.prompt, *choice["token_ids"]])
    scores = llm.control.score(sequence)
    assert len(scores) == len(sequence)
    assert scores[0] == 0.0
    assert list(scores[len(llm.prompt) :]) == pytest.approx(logprobs(choice), abs=1e-3)


def test_a_response_out_of_tokens_ends_with_length(llm: LLM) -> None:
    choice = llm.generate(max_tokens=3, temperature=1.0, ignore_eos=True)
    assert choice["finish_reason"] == "length"
    assert len(choice["token_ids"]) == 3


def test_a_response_that_ends_its_turn_includes_the_end_token(llm: LLM) -> None:
    end_of_turn = Vocabulary.load(POLICY).end_of_turn
    choice = llm.generate(max_tokens=64, temperature=0.0)
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"].index(end_of_turn) == len(choice["token_ids"]) - 1


def test_a_stop_token_ends_the_response_and_is_included(llm: LLM) -> None:
    whole = llm.generate(max_tokens=64, temperature=0.0)["token_ids"]
    stop = whole[1]
    choice = llm.generate(max_tokens=64, temperature=0.0, stop_token_ids=[stop])
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"] == whole[: whole.index(stop) + 1]


@pytest.mark.parametrize("end", MANY_ENDS)
def test_every_end_token_of_the_models_files_ends_a_response(llm: LLM, end: int) -> None:
    choice = llm.generate(max_tokens=4, temperature=1.0, allowed_token_ids=[end])
    assert (choice["finish_reason"], choice["token_ids"]) == ("stop", [end])


@pytest.mark.parametrize(
    ("stop_token_ids", "ended"), [([MANY_ENDS[0]], "length"), ([*MANY_ENDS], "stop")]
)
def test_with_ignore_eos_the_requests_own_stop_tokens_alone_end_a_response(
    llm: LLM, stop_token_ids: list[int], ended: str
) -> None:
    choice = llm.generate(
        max_tokens=4,
        temperature=1.0,
        allowed_token_ids=[MANY_ENDS[1]],
        ignore_eos=True,
        stop_token_ids=stop_token_ids,
    )
    assert choice["finish_reason"] == ended
    assert choice["token_ids"] == [MANY_ENDS[1]] * (4 if ended == "length" else 1)


@pytest.mark.parametrize("certain", [{"top_k": 1}, {"top_p": 1e-6}, {"allowed_token_ids": [65]}])
def test_logprobs_are_of_the_distribution_that_was_sampled_from(
    llm: LLM, certain: dict[str, Any]
) -> None:
    choice = llm.generate(max_tokens=8, temperature=1.0, ignore_eos=True, **certain)
    assert logprobs(choice) == pytest.approx([0.0] * 8, abs=1e-6)
    scores = llm.control.score(array("i", [*llm.prompt, *choice["token_ids"]]))
    assert min(scores) < -1e-3, "scores are of the model itself"


def test_a_low_temperature_makes_the_most_likely_token_likelier_and_a_high_one_less(
    llm: LLM,
) -> None:
    greedy = llm.generate(max_tokens=1, temperature=0.0)
    (likely,), (logprob,) = greedy["token_ids"], logprobs(greedy)
    drawn: dict[float, float] = {}
    for temperature, seed in itertools.product((0.5, 2.0), range(40)):
        sample = llm.generate(max_tokens=1, temperature=temperature, seed=seed)
        if sample["token_ids"] == [likely]:
            (drawn[temperature],) = logprobs(sample)
    assert drawn[0.5] > logprob > drawn[2.0]


def test_a_request_that_makes_no_sense_is_refused_as_such(llm: LLM) -> None:
    bad: list[dict[str, Any]] = [
        {"token_ids": [], "sampling_params": {}},
        {"token_ids": [10**6], "sampling_params": {}},
        {"token_ids": llm.prompt, "sampling_params": {"max_tokens": 0}},
        {"token_ids": llm.prompt, "sampling_params": {"temperature": -1.0}},
        {"token_ids": llm.prompt * 200, "sampling_params": {}},
        {"token_ids": llm.prompt},
    ]
    for body in bad:
        answer = llm.post("/inference/v1/generate", body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["message"]


def test_an_aborted_request_returns_its_tokens_so_far(llm: LLM) -> None:
    running = llm.begin(1500, request_id="to-abort")
    assert llm.post(ABORT, {"request_ids": ["generate-tokens-to-abort"]}).status_code == 200
    choice = running.result(DEADLINE_SECONDS)
    assert choice["finish_reason"] == "abort"
    assert 0 < len(choice["token_ids"]) < 1500
    assert len(logprobs(choice)) == len(versions(choice)) == len(choice["token_ids"])


def test_aborting_touches_no_other_request(llm: LLM) -> None:
    running = llm.begin(60, request_id="to-keep")
    assert llm.post(ABORT, {"request_ids": ["to-keep", "unknown"]}).status_code == 200
    assert running.result(DEADLINE_SECONDS)["finish_reason"] == "length"


def test_a_request_whose_caller_hung_up_stops(llm: LLM) -> None:
    before = llm.tokens_drawn()
    body = {
        "token_ids": llm.prompt,
        "sampling_params": {"max_tokens": 1900, "temperature": 1.0, "ignore_eos": True},
    }
    with pytest.raises(requests.Timeout):
        requests.post(f"{llm.url}/inference/v1/generate", json=body, timeout=(5, 0.3))
    llm.wait(lambda: llm.requests_running() == 0, "the abandoned request to stop")
    assert llm.tokens_drawn() - before < 1900


def test_a_pause_freezes_a_generation_and_resume_finishes_it(llm: LLM) -> None:
    running = llm.begin(400)
    llm.control.pause()
    assert llm.control.paused()
    frozen_at = llm.tokens_drawn()
    with pytest.raises(concurrent.futures.TimeoutError):
        running.result(0.5)
    assert llm.tokens_drawn() == frozen_at
    llm.control.resume()
    assert not llm.control.paused()
    choice = running.result(DEADLINE_SECONDS)
    assert choice["finish_reason"] == "length"
    assert len(logprobs(choice)) == 400


def test_a_request_sent_while_paused_is_answered_after_resume(llm: LLM) -> None:
    llm.control.pause()
    waiting = llm.later(max_tokens=4, temperature=1.0)
    with pytest.raises(concurrent.futures.TimeoutError):
        waiting.result(0.3)
    llm.control.resume()
    assert waiting.result(DEADLINE_SECONDS)["token_ids"]


def test_a_request_can_be_aborted_while_paused_and_keeps_its_tokens(llm: LLM) -> None:
    running = llm.begin(1500, request_id="frozen")
    llm.control.pause()
    llm.post(ABORT, {"request_ids": ["generate-tokens-frozen"]})
    choice = running.result(DEADLINE_SECONDS)
    assert choice["finish_reason"] == "abort"
    assert 0 < len(choice["token_ids"]) < 1500
    assert len(logprobs(choice)) == len(versions(choice)) == len(choice["token_ids"])


def test_a_request_sent_and_aborted_while_paused_has_no_tokens(llm: LLM) -> None:
    llm.control.pause()
    waiting = llm.later(request_id="early", max_tokens=8, temperature=1.0)

    def aborted() -> bool:
        """An abort that comes before its request finds nothing."""
        llm.post(ABORT, {"request_ids": ["generate-tokens-early"]})
        return bool(concurrent.futures.wait([waiting], 0.2).done)

    llm.wait(aborted, "the request to end")
    choice = waiting.result()
    assert (choice["finish_reason"], choice["token_ids"]) == ("abort", [])


def test_an_aborted_response_goes_on_under_new_weights(llm: LLM, other_weights: Path) -> None:
    """What a parked job's response goes through: each part scores under the weights of its own."""
    old = llm.control.version() or 0
    running = llm.begin(1500, request_id="parked")
    llm.post(ABORT, {"request_ids": ["generate-tokens-parked"]})
    first = running.result(DEADLINE_SECONDS)
    llm.control.pause()
    llm.control.load_weights(other_weights)
    llm.control.reset_prefix_cache()
    llm.control.set_version(old + 1)
    llm.control.resume()
    so_far = [*llm.prompt, *first["token_ids"]]
    second = llm.generate(prompt=so_far, max_tokens=40, temperature=1.0, ignore_eos=True)
    assert set(versions(first)) == {str(old)}
    assert set(versions(second)) == {str(old + 1)}
    scores = llm.control.score(array("i", [*so_far, *second["token_ids"]]))
    assert logprobs(second) == pytest.approx(list(scores[len(so_far) :]), abs=1e-3)
    llm.control.load_weights(POLICY)
    llm.control.reset_prefix_cache()
    scores = llm.control.score(array("i", so_far))
    assert logprobs(first) == pytest.approx(list(scores[len(llm.prompt) :]), abs=1e-3)


def test_new_weights_change_the_logprobs_and_their_spans_the_version(
    llm: LLM, other_weights: Path
) -> None:
    sequence = array("i", llm.prompt)
    version = (llm.control.version() or 0) + 1
    old = llm.control.score(sequence)
    llm.control.load_weights(other_weights)
    llm.control.reset_prefix_cache()
    llm.control.set_version(version)
    new = llm.control.score(sequence)
    assert max(abs(a - b) for a, b in zip(old, new, strict=True)) > 1e-3
    assert set(versions(llm.generate(max_tokens=8, temperature=1.0))) == {str(version)}
    llm.control.load_weights(POLICY)
    assert list(llm.control.score(sequence)) == pytest.approx(list(old), abs=1e-4)


def test_after_an_update_in_mid_generation_tokens_are_those_of_the_new_weights(
    llm: LLM, other_weights: Path
) -> None:
    old = llm.control.version() or 0
    running = llm.begin(600)
    llm.control.pause()
    llm.control.load_weights(other_weights)
    llm.control.reset_prefix_cache()
    llm.control.set_version(old + 1)
    llm.control.resume()
    choice = running.result(DEADLINE_SECONDS)
    assert [span["version"] for span in choice["weight_versions"]] == [
        str(old),
        str(old + 1),
    ]
    assert len(versions(choice)) == 600
    cut = choice["weight_versions"][1]["start"]
    scores = llm.control.score(array("i", [*llm.prompt, *choice["token_ids"]]))
    after = list(scores[len(llm.prompt) + cut :])
    assert logprobs(choice)[cut:] == pytest.approx(after, abs=1e-3)


def test_a_failed_load_is_healed_by_a_good_one_while_paused(llm: LLM, tmp_path: Path) -> None:
    before = llm.generate(max_tokens=8, temperature=0.0)
    llm.control.pause()
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}
    told = requests.post(f"{llm.server}/collective_rpc", json=body, timeout=DEADLINE_SECONDS)
    assert told.status_code == 500
    llm.control.load_weights(POLICY)
    llm.control.resume()
    after = llm.generate(max_tokens=8, temperature=0.0)
    assert after["token_ids"] == before["token_ids"]
    assert logprobs(after) == pytest.approx(logprobs(before), abs=1e-4)
