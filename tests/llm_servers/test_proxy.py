"""The proxy in front of a node's LLM servers, beyond the contract that it shares with each."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from llm_servers.contract import GENERATE
from llm_servers.llm_connection import AddressOfLLM, LLMConnection
from tests.llm_fixtures import MortalLLM, StartProxy, label
from tests.llm_servers.conftest import DEADLINE_SECONDS, LLM

TOKEN = "w" * 40


def body(tokens: int, **more: Any) -> dict[str, Any]:
    sampling = {"max_tokens": tokens, "logprobs": 0, "ignore_eos": True}
    return {"token_ids": [1, 2, 3], "sampling_params": sampling, **more}


def post(url: str, sent: dict[str, Any], **options: Any) -> requests.Response:
    return requests.post(f"{url}{GENERATE}", json=sent, timeout=DEADLINE_SECONDS, **options)


def test_only_a_token_of_a_service_is_admitted_and_no_control_route_is_there(
    scripted_llm: str, start_proxy: StartProxy, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"worker {TOKEN}\nsubmit {'s' * 40}\n")
    tokens.chmod(0o600)
    proxy = start_proxy(scripted_llm, options=("--token-file", str(tokens)))

    def status(path: str, token: str = "") -> int:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        answer = requests.post(f"{proxy}{path}", json=body(2), headers=shown, timeout=10)
        return answer.status_code

    assert (status(GENERATE), status(GENERATE, "s" * 40), status(GENERATE, TOKEN)) == (
        401,
        403,
        200,
    )
    control = ("/pause", "/resume", "/collective_rpc", "/update_weight_version", "/script/faults")
    assert {status(path, TOKEN) for path in control} == {404}
    with LLMConnection(AddressOfLLM.of(proxy), 5.0, TOKEN) as shown:
        shown.send("GET", "/v1/models", b"", 5.0)
        assert shown.answer().status == 200


@pytest.fixture
def slow_llm(tmp_path: Path) -> Iterator[MortalLLM]:
    """A stand-in that takes 10 s for 200 tokens."""
    slow = MortalLLM(tmp_path, "--token-seconds", "0.05")
    label(slow.url, 0)
    yield slow
    slow.tell(signal.SIGCONT)
    slow.die()


def test_a_request_whose_server_dies_is_answered_by_another(
    slow_llm: MortalLLM, scripted_llm: str, start_proxy: StartProxy
) -> None:
    proxy = start_proxy(slow_llm.url, scripted_llm)
    watched = LLM(slow_llm.url, [1])
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(post, proxy, body(1500, request_id=f"t{n}-0")) for n in range(4)]
        watched.wait(lambda: watched.tokens_drawn() > 0, "the slow server to begin")
        slow_llm.die()
        assert [each.result(DEADLINE_SECONDS).status_code for each in asked] == [200] * 4
    watched.control.close()


def test_a_server_that_hangs_loses_its_requests_to_another(
    slow_llm: MortalLLM, scripted_llm: str, start_proxy: StartProxy
) -> None:
    proxy = start_proxy(slow_llm.url, scripted_llm, options=("--silent-seconds", "2"))
    slow_llm.tell(signal.SIGSTOP)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(post, proxy, body(2, request_id=f"t{n}-0")) for n in range(4)]
        assert [each.result(DEADLINE_SECONDS).status_code for each in asked] == [200] * 4


def test_a_stream_passes_through_and_breaks_off_with_its_server(
    slow_llm: MortalLLM, start_proxy: StartProxy
) -> None:
    proxy = start_proxy(slow_llm.url)
    with post(proxy, body(3, stream=True), stream=True) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert [line for line in answer.iter_lines() if line][-1] == b"data: [DONE]"
    with post(proxy, body(200, stream=True), stream=True) as answer:
        lines = answer.iter_lines()
        next(lines)
        slow_llm.die()
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(lines)


def test_prorls_route_is_answered_in_prorls_words(
    scripted_llm: str, start_proxy: StartProxy
) -> None:
    asked = {"prompt_ids": [1, 2, 3], "max_tokens": 3, "temperature": 1.0, "top_p": 1.0, "seed": 1}
    answer = requests.post(f"{start_proxy(scripted_llm)}/generate", json=asked, timeout=10)
    told = answer.json()
    assert 1 <= len(told["response_ids"]) == len(told["logprobs"]) <= 3
