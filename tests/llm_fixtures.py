"""LLM servers for tests: the scripted stand-in, started afresh, and one real vLLM a session."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy
import pytest
import requests
from safetensors.numpy import load_file, save_file

from launch.free_ports import free_port
from launch.processes import Started, module_command, start_process
from launch.readiness import answers, wait_until_ready
from llm_servers.server import LLMServer
from rollyard.errors import LaunchError

ROOT = Path(__file__).resolve().parent.parent
POLICY = ROOT / "examples" / "arithmetic" / "policy"
WEIGHTS = "model.safetensors"
VLLM_PYTHON = ROOT / ".venv-llm" / "bin" / "python"

SCRIPTED_START_SECONDS = 20.0
VLLM_START_SECONDS = 240.0

MANY_ENDS = (258, 256, 257)
"""Tokens that end a response of `policy_of_many_ends`; the template ends turns with the first."""


def write_weights(directory: Path, name: str) -> Path:
    """A file of weights as far as a stand-in looks at them: it names them by their bytes."""
    save_file({name: numpy.zeros(1, numpy.float32)}, directory / WEIGHTS)
    return directory / WEIGHTS


def policy_of_many_ends(directory: Path) -> Path:
    """A copy of the policy whose generation_config.json names three end tokens, as many models'
    do."""
    shutil.copytree(POLICY, directory, dirs_exist_ok=True)
    config = {"eos_token_id": list(MANY_ENDS), "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    (directory / "generation_config.json").write_text(json.dumps(config))
    return directory


class FirstWords(NamedTuple):
    """What an LLM server that just started says of its weights, before anybody does."""

    label: str
    spans: list[dict[str, Any]]
    """Of its first response."""


class StartScriptedLLM(Protocol):
    def __call__(self, *options: str, model: Path = POLICY, labelled: bool = True) -> str:
        """The URL of a new stand-in, started with `options`; its weights are version 0 if
        `labelled`."""


def start_module(arguments: Sequence[str], log: Path) -> Started:
    """Start a Python module of ours, named as its log is."""
    return start_process(log.stem, module_command(*arguments), log)


def await_healthy(started: Started, url: str, seconds: float) -> None:
    """Wait until `url` is healthy. Fails with the end of the log."""
    assert started.log is not None
    try:
        wait_until_ready(started, lambda: answers(f"{url}/health"), seconds)
    except LaunchError as error:
        pytest.fail(f"{error}; the end of its log:\n{started.log.read_text()[-3000:]}")


class MortalLLM:
    """An LLM server that dies and is started again where it was, as its supervisor would do."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        module: str = "llm_servers.scripted",
        seconds: float = SCRIPTED_START_SECONDS,
    ) -> None:
        """A stand-in, unless `module` starts another kind of server, ready within `seconds`."""
        self._port = free_port()
        self._module, self._seconds = module, seconds
        self._options = options
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = directory / "mortal.log"
        self.start()

    def start(self) -> None:
        arguments = [self._module, "--model", str(POLICY), "--port", str(self._port)]
        self._started = start_module([*arguments, *self._options], self._log)
        await_healthy(self._started, self.url, self._seconds)

    def die(self) -> None:
        self._started.kill()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        os.killpg(self._started.process.pid, number)


@contextlib.contextmanager
def scripted_servers(directory: Path) -> Iterator[StartScriptedLLM]:
    """Starts stand-ins, and stops them all in the end."""
    running: list[Started] = []

    def start(*options: str, model: Path = POLICY, labelled: bool = True) -> str:
        port = free_port()
        url, log = f"http://127.0.0.1:{port}", directory / f"scripted-{port}.log"
        started = start_module(
            ["llm_servers.scripted", "--model", str(model), "--port", str(port), *options], log
        )
        running.append(started)
        await_healthy(started, url, SCRIPTED_START_SECONDS)
        if labelled:
            label(url, 0)
        return url

    try:
        yield start
    finally:
        for started in running:
            started.kill()  # gunicorn would first wait for idle keep-alive connections


@pytest.fixture
def start_scripted_llm(tmp_path: Path) -> Iterator[StartScriptedLLM]:
    """Starts stand-ins, and stops them all at the end of the test."""
    with scripted_servers(tmp_path) as start:
        yield start


class StartProxy(Protocol):
    def __call__(self, *servers: str, options: Sequence[str] = ()) -> str:
        """The URL of a new proxy in front of these servers, started with `options`."""


@contextlib.contextmanager
def proxies(directory: Path) -> Iterator[StartProxy]:
    """Starts proxies, and stops them all in the end."""
    running: list[Started] = []

    def start(*servers: str, options: Sequence[str] = ()) -> str:
        port = free_port()
        scheme = "https" if "--tls-cert" in options else "http"
        url, log = f"{scheme}://127.0.0.1:{port}", directory / f"proxy-{port}.log"
        named = (part for server in servers for part in ("--server", server))
        started = start_module(["llm_servers.proxy", "--port", str(port), *named, *options], log)
        running.append(started)
        await_healthy(started, url, SCRIPTED_START_SECONDS)
        return url

    try:
        yield start
    finally:
        for started in running:
            started.kill()


@pytest.fixture
def start_proxy(tmp_path: Path) -> Iterator[StartProxy]:
    """Starts proxies, and stops them all at the end of the test."""
    with proxies(tmp_path) as start:
        yield start


@pytest.fixture
def unlabelled_llm(start_scripted_llm: StartScriptedLLM) -> str:
    """The URL of a fresh stand-in whose weights nobody has labelled."""
    return start_scripted_llm("--tool-rate", "1", labelled=False)


@pytest.fixture
def scripted_llm(start_scripted_llm: StartScriptedLLM) -> str:
    """The URL of a fresh stand-in that answers at once."""
    return start_scripted_llm()


@pytest.fixture(scope="session")
def started_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, FirstWords]]:
    """The URL of a real vLLM serving the committed policy, with the end tokens of
    `policy_of_many_ends`, and what it said first."""
    if not VLLM_PYTHON.exists():
        pytest.fail(f"the real vLLM is not installed: no {VLLM_PYTHON}; run `make test`")
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("vllm") / "vllm.log"
    model = policy_of_many_ends(tmp_path_factory.mktemp("model"))
    started = start_module(
        [
            *("llm_servers.vllm_server", "--python", str(VLLM_PYTHON), "--model", str(model)),
            *("--port", str(port), "--dtype", "float32"),
        ],
        log,
    )
    try:
        await_healthy(started, url, VLLM_START_SECONDS)
        yield url, first_words(url)
    finally:
        started.stop()


@pytest.fixture(scope="session")
def vllm_llm(started_vllm: tuple[str, FirstWords]) -> str:
    """The URL of a real vLLM serving the committed policy, labelled version 0."""
    url, _ = started_vllm
    label(url, 0)
    return url


def label(url: str, version: int) -> None:
    """Do what its node does: say which version the server's weights are."""
    server = LLMServer(url)
    server.set_version(version)
    server.close()


def publish(server: LLMServer, weights: Path, version: int) -> None:
    """Do what its node does at a weight update."""
    server.pause()
    server.load_weights(weights)
    server.reset_prefix_cache()
    server.set_version(version)
    server.resume()


def first_words(url: str) -> FirstWords:
    told = requests.get(f"{url}/weight_info", timeout=5).json()
    body = {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4, "logprobs": 0}}
    answer = requests.post(f"{url}/inference/v1/generate", json=body, timeout=120).json()
    return FirstWords(told["weight_version"], answer["choices"][0]["weight_versions"])


class MakeWeights(Protocol):
    def __call__(self, scale: float) -> Path:
        """A checkpoint of the policy's shape with so much noise added: at 0.02 its responses still
        end, from 0.1 on they wander."""


@pytest.fixture(scope="session")
def make_weights(tmp_path_factory: pytest.TempPathFactory) -> MakeWeights:
    def make(scale: float) -> Path:
        checkpoint = tmp_path_factory.mktemp("weights")
        noise = numpy.random.default_rng(0)
        noisy = {
            name: tensor + scale * noise.standard_normal(tensor.shape, numpy.float32)
            for name, tensor in load_file(POLICY / WEIGHTS).items()
        }
        save_file(noisy, checkpoint / WEIGHTS, metadata={"format": "pt"})
        (checkpoint / "config.json").write_bytes((POLICY / "config.json").read_bytes())
        return checkpoint

    return make


@pytest.fixture(scope="session")
def many_ends_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the policy that ends each response with one of `MANY_ENDS`, by chance."""
    checkpoint = policy_of_many_ends(tmp_path_factory.mktemp("many-ends"))
    tensors, (usual, *others) = load_file(checkpoint / WEIGHTS), MANY_ENDS
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        tensors[name][others] = tensors[name][usual]
    save_file(tensors, checkpoint / WEIGHTS, metadata={"format": "pt"})
    return checkpoint


@pytest.fixture(scope="session")
def other_weights(make_weights: MakeWeights) -> Path:
    """A checkpoint of the policy's shape whose weights differ a little."""
    return make_weights(0.02)
