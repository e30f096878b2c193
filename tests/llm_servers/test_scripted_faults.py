"""The faults that the stand-in shows on demand."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest
import requests

from tests.llm_fixtures import ROOT

BODY = {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 2, "logprobs": 0}}


def set_fault(url: str, kind: str, times: int = 1) -> None:
    body = {"kind": kind, "times": times}
    requests.post(f"{url}/script/faults", json=body, timeout=5).raise_for_status()


def generate(url: str, seconds: float = 10.0) -> requests.Response:
    return requests.post(f"{url}/inference/v1/generate", json=BODY, timeout=seconds)


def choice(url: str) -> dict[str, Any]:
    (only,) = generate(url).json()["choices"]
    assert isinstance(only, dict)
    return only


def values(made: dict[str, Any]) -> list[float]:
    return [entry["logprob"] for entry in made["logprobs"]["content"]]


def test_a_fault_shows_as_often_as_it_was_asked_for(scripted_llm: str) -> None:
    set_fault(scripted_llm, "error_500", times=2)
    assert [generate(scripted_llm).status_code for _ in range(3)] == [500, 500, 200]


def test_logprobs_can_be_nan_or_what_vllm_makes_of_nan(scripted_llm: str) -> None:
    set_fault(scripted_llm, "nan_logprobs")
    assert all(map(math.isnan, values(choice(scripted_llm))))
    set_fault(scripted_llm, "floor_logprobs")
    assert set(values(choice(scripted_llm))) == {-9999.0}


def test_a_logprob_can_be_missing(scripted_llm: str) -> None:
    set_fault(scripted_llm, "missing_logprob")
    made = choice(scripted_llm)
    assert len(values(made)) == len(made["token_ids"]) - 1


def test_tokens_can_be_outside_every_vocabulary(scripted_llm: str) -> None:
    set_fault(scripted_llm, "garbage_tokens")
    assert min(choice(scripted_llm)["token_ids"]) >= 10**6


def test_json_can_end_half_way(scripted_llm: str) -> None:
    set_fault(scripted_llm, "truncated_json")
    with pytest.raises(requests.exceptions.JSONDecodeError):
        generate(scripted_llm).json()


def test_a_hanging_request_is_answered_when_the_fault_is_cleared(scripted_llm: str) -> None:
    set_fault(scripted_llm, "hang")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(generate, scripted_llm)
        with pytest.raises(FutureTimeoutError):
            hanging.result(0.3)
        assert generate(scripted_llm).status_code == 200  # only the one request hangs
        set_fault(scripted_llm, "hang", times=0)
        assert hanging.result(10).status_code == 200


@pytest.mark.parametrize("body", [{"kind": "unheard_of"}, {"kind": "hang", "time": 3}, {}])
def test_an_unknown_fault_is_refused(scripted_llm: str, body: dict[str, object]) -> None:
    answer = requests.post(f"{scripted_llm}/script/faults", json=body, timeout=5)
    assert answer.status_code == 400


def test_weights_lost_in_a_failed_load_break_the_engine_for_good(scripted_llm: str) -> None:
    """As vLLM does, which answers with errors and then ends."""
    lost = {"method": "reload_weights", "kwargs": {"weights_path": "/nowhere"}}
    assert requests.post(f"{scripted_llm}/collective_rpc", json=lost, timeout=5).status_code == 500
    assert generate(scripted_llm).status_code == 500
    assert requests.get(f"{scripted_llm}/health", timeout=5).status_code == 503


def test_bad_arguments_end_with_one_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "llm_servers.scripted", "--model", "/nowhere", "--port", "8101"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()
    assert "no tokenizer at /nowhere/tokenizer.json" in sentence
