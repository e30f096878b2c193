"""What the tests of the LLM servers share: a caller of the contract, and how it is called."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from llm_servers.scripted.script import Vocabulary
from llm_servers.server import LLMServer
from tests.llm_fixtures import (
    POLICY,
    FirstWords,
    MortalLLM,
    StartScriptedLLM,
    first_words,
    policy_of_many_ends,
    proxies,
    scripted_servers,
)

QUESTION = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
DEADLINE_SECONDS = 60.0


class LLM:
    """A caller of one LLM server, in vLLM's own words."""

    def __init__(self, url: str, prompt: list[int], server: str = "", model: str = "") -> None:
        """`server` is the server itself, where a proxy is at `url`; `model` is what requests name,
        if anything."""
        self.url = url
        self._model = {"model": model} if model else {}
        self.server = server or url
        self.prompt = prompt
        self.control = LLMServer(self.server)
        self._threads = ThreadPoolExecutor(8)

    def generate(
        self, *, request_id: str = "", prompt: list[int] | None = None, **sampling: Any
    ) -> dict[str, Any]:
        """The only choice of the answer."""
        token_ids = self.prompt if prompt is None else prompt
        body: dict[str, Any] = {
            "token_ids": token_ids,
            "sampling_params": {"logprobs": 0, **sampling},
            **self._model,
        }
        if request_id:
            body["request_id"] = request_id
        answer = self.post("/inference/v1/generate", body)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert isinstance(choice, dict)
        return choice

    def begin(self, tokens: int, request_id: str = "") -> "Future[dict[str, Any]]":
        """A generation of exactly `tokens`, of which some are drawn when this returns."""
        before = self.tokens_drawn()
        future = self._threads.submit(
            self.generate,
            request_id=request_id,
            max_tokens=tokens,
            temperature=1.0,
            ignore_eos=True,
        )
        self.wait(lambda: self.tokens_drawn() > before + 3, "tokens to be drawn")
        return future

    def later(self, **sampling: Any) -> "Future[dict[str, Any]]":
        return self._threads.submit(self.generate, **sampling)

    def post(self, path: str, body: object = None) -> requests.Response:
        return requests.post(f"{self.url}{path}", json=body, timeout=DEADLINE_SECONDS)

    def tokens_drawn(self) -> float:
        return self._metric("vllm:generation_tokens_total")

    def requests_running(self) -> float:
        return self._metric("vllm:num_requests_running")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        never = threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {DEADLINE_SECONDS:g} s for {what}")
            never.wait(0.01)

    def close(self) -> None:
        """Leave the server as it was: running, with the policy's own weights."""
        self.control.load_weights(POLICY)
        self.control.resume()
        self._threads.shutdown()
        self.control.close()

    def _metric(self, name: str) -> float:
        text = requests.get(f"{self.url}/metrics", timeout=DEADLINE_SECONDS).text
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.fixture(scope="session")
def prompt() -> list[int]:
    """The demo task's question as the policy sees it."""
    return Vocabulary.load(POLICY).encode(QUESTION)


@pytest.fixture(params=["scripted", "vllm"])
def said_first(request: pytest.FixtureRequest) -> FirstWords:
    """What each kind of LLM server says of its weights before anybody does."""
    if request.param == "scripted":
        return first_words(request.getfixturevalue("unlabelled_llm"))
    _, said = request.getfixturevalue("started_vllm")
    assert isinstance(said, FirstWords)
    return said


@pytest.fixture(scope="session")
def proxied_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of a proxy and of the stand-in behind it."""
    directory = tmp_path_factory.mktemp("proxied")
    model = policy_of_many_ends(directory / "model")
    with scripted_servers(directory) as start, proxies(directory) as start_one:
        server = start("--token-seconds", "0.002", model=model)
        yield start_one(server), server


@pytest.fixture(params=["scripted", "proxy", "vllm"])
def llm(request: pytest.FixtureRequest, prompt: list[int]) -> Iterator[LLM]:
    """Both kinds of LLM server, and one behind the proxy; the stand-in takes a while for each
    token, as a model does."""
    server = ""
    if request.param == "scripted":
        start: StartScriptedLLM = request.getfixturevalue("start_scripted_llm")
        model = policy_of_many_ends(request.getfixturevalue("tmp_path") / "model")
        url = start("--token-seconds", "0.002", model=model)
    elif request.param == "proxy":
        url, server = request.getfixturevalue("proxied_llm")
    else:
        url = request.getfixturevalue("vllm_llm")
    caller = LLM(url, prompt, server)
    yield caller
    caller.close()


@pytest.fixture
def mortal_llm(tmp_path: Path) -> Iterator[MortalLLM]:
    llm = MortalLLM(tmp_path)
    yield llm
    llm.die()
