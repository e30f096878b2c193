"""LoRA adapters: published as checkpoints are, with the same promises, on vLLM and the stand-in."""

import json
import shutil
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from agent_server.control.stop import StopSignal
from agent_server.llm import LLMClient, LLMSettings
from benchmarks.weights.adapter import RANK, merged, random_adapter
from llm_servers.dialects.vllm_completions import VLLM_COMPLETIONS
from llm_servers.dialects.vllm_tokens import VLLM_TOKENS
from llm_servers.generation import TurnRequest
from llm_servers.scripted.adapters import ScriptedAdapters
from llm_servers.scripted.engine import ScriptedEngine
from llm_servers.server import LLMServer
from llm_servers.standing import state_of
from llm_servers.weights import WeightUpdater
from rollyard.errors import InvalidMessage
from rollyard.messages import Sampling, WeightReport, WeightUpdate
from tests.llm_fixtures import (
    POLICY,
    VLLM_PYTHON,
    VLLM_START_SECONDS,
    MortalLLM,
    StartProxy,
    label,
)
from tests.llm_servers.conftest import DEADLINE_SECONDS, LLM
from tests.llm_servers.torch_truth import true_logprobs

pytestmark = pytest.mark.timeout(600)  # vLLM starts twice

MAX_GAP = 1e-3
TOKENS = {True: 600, False: 1900}
"""Length of responses that outlast two updates, of vLLM and of the stand-in."""


class Adapted:
    """An LLM server that takes adapters, as its node sees it."""

    def __init__(self, kind: str, directory: Path, prompt: list[int]) -> None:
        self.is_real = kind == "vllm"
        if self.is_real:
            options = ("--python", str(VLLM_PYTHON), "--dtype", "float32", "--", "--enable-lora")
            module, seconds = "llm_servers.vllm_server", VLLM_START_SECONDS
            self.mortal = MortalLLM(directory, *options, module=module, seconds=seconds)
        else:
            self.mortal = MortalLLM(directory, "--enable-lora", "--token-seconds", "0.002")
        label(self.mortal.url, 0)
        self.directory = directory
        self.llm = LLM(self.mortal.url, prompt, model="policy")
        self.server = LLMServer(self.mortal.url)
        self.updater = WeightUpdater([self.server], model=POLICY)

    def publish(self, path: Path | str) -> WeightReport:
        version = self.updater.version + 1
        return self.updater.update(WeightUpdate(path=str(path), version=version))

    def scores(self, token_ids: list[int] | None = None) -> list[float]:
        return list(self.server.score(array("i", token_ids or self.llm.prompt)))

    def truth(self, token_ids: list[int], adapters: list[Path]) -> list[list[float]]:
        """The logprobs with each of these adapters: by torch, or by the stand-in's own rule."""
        if not self.is_real:
            return [_scripted(token_ids, adapter) for adapter in adapters]
        checkpoints = [self.merged(adapter) for adapter in adapters]
        return true_logprobs(token_ids, *checkpoints)

    def merged(self, adapter: Path) -> Path:
        checkpoint = adapter.with_name(f"{adapter.name}-merged")
        return checkpoint if checkpoint.exists() else merged(adapter, POLICY, checkpoint)


def _scripted(token_ids: list[int], adapter: Path) -> list[float]:
    adapters = ScriptedAdapters(adapter, RANK)
    engine = ScriptedEngine(POLICY, token_seconds=0.0, adapters=adapters)
    return [0.0, *engine.score(token_ids, adapted=True)[1:]]


@pytest.fixture(scope="module", params=["scripted", "vllm"])
def adapted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, prompt: list[int]
) -> Iterator[Adapted]:
    directory = tmp_path_factory.mktemp("adapted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))  # where servers have their places
        served = Adapted(request.param, directory, prompt)
        yield served
        served.mortal.die()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("adapters")
    return [random_adapter(directory / f"step-{seed}", POLICY, seed) for seed in (1, 2, 3)]


def test_before_any_adapter_the_policy_is_the_model_as_started(
    adapted: Adapted,
) -> None:
    named = adapted.llm.generate(max_tokens=8, temperature=0.0)
    unnamed = LLM(adapted.llm.url, adapted.llm.prompt).generate(max_tokens=8, temperature=0.0)
    assert named["token_ids"] == unnamed["token_ids"]
    assert named["logprobs"] == unnamed["logprobs"]


def test_every_token_is_of_the_adapter_that_its_version_names(
    adapted: Adapted, adapters: list[Path]
) -> None:
    """Also those of responses that began between two updates."""
    first, second, third = adapters
    adapted.publish(first)
    begun = adapted.updater.version
    responses = [adapted.llm.begin(TOKENS[adapted.is_real])]
    for adapter in (second, third):
        report = adapted.publish(adapter)
        assert report.servers == (adapted.server.url,)
        responses.append(adapted.llm.begin(TOKENS[adapted.is_real]))
    for at, response in enumerate(responses):
        choice = response.result(DEADLINE_SECONDS)
        spans = choice["weight_versions"]
        assert [int(span["version"]) for span in spans] == list(range(begun + at, begun + 3))
        assert choice["finish_reason"] == "length"
        assert worst_gap(adapted, choice, adapters[at:]) < MAX_GAP


def worst_gap(adapted: Adapted, choice: dict[str, Any], adapters: list[Path]) -> float:
    """The largest difference of a token's logprob from that under the adapter of its span."""
    told = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert len(told) == len(choice["token_ids"]) == TOKENS[adapted.is_real]
    sequence, prompt = [*adapted.llm.prompt, *choice["token_ids"]], len(adapted.llm.prompt)
    truths = adapted.truth(sequence, adapters)
    assert all(max(map(abs_gap, a, b)) > 0.1 for a, b in pairwise(truths)), "they tell them apart"
    spans = zip(choice["weight_versions"], truths, strict=True)
    return max(
        abs_gap(told[at], truth[prompt + at])
        for span, truth in spans
        for at in range(span["start"], span["end"])
    )


def abs_gap(one: float, other: float) -> float:
    return abs(one - other)


def test_tokens_are_scored_while_others_are_sampled(adapted: Adapted, adapters: list[Path]) -> None:
    adapted.publish(adapters[0])
    alone = adapted.scores()
    running = [adapted.llm.begin(TOKENS[adapted.is_real]) for _ in range(3)]
    beside = adapted.scores()
    assert not any(response.done() for response in running)
    assert beside == pytest.approx(alone, abs=MAX_GAP)
    for response in running:
        assert response.result(DEADLINE_SECONDS)["finish_reason"] == "length"


def test_agent_servers_ask_for_the_adapter_in_every_dialect_of_vllm(
    adapted: Adapted, adapters: list[Path]
) -> None:
    adapted.publish(adapters[0])
    dialects = (VLLM_TOKENS, VLLM_COMPLETIONS) if adapted.is_real else (VLLM_TOKENS,)
    for dialect in dialects:
        client = LLMClient(LLMSettings(servers=(adapted.llm.url,)), (dialect,))
        generation = client.generate(turn(adapted.llm.prompt), StopSignal())
        client.close()
        (truth,) = adapted.truth([*adapted.llm.prompt, *generation.token_ids], adapters[:1])
        said = truth[len(adapted.llm.prompt) :]
        assert list(generation.logprobs) == pytest.approx(said, abs=MAX_GAP)


def turn(prompt: list[int]) -> TurnRequest:
    return TurnRequest(
        trajectory="t",
        group="g",
        token_ids=prompt,
        sampling=Sampling(),
        max_tokens=40,
        stop_token_ids=(),
    )


def test_the_state_of_a_server_names_its_adapter(adapted: Adapted, adapters: list[Path]) -> None:
    adapted.publish(adapters[0])
    assert state_of(adapted.server).adapter == str(adapters[0])
    adapted.publish(POLICY)
    assert state_of(adapted.server).adapter == ""


def test_an_adapter_is_upon_the_model_as_started_whatever_was_published_before(
    adapted: Adapted, adapters: list[Path], other_weights: Path
) -> None:
    adapted.publish(POLICY)
    as_started = adapted.scores()
    adapted.publish(adapters[0])
    with_adapter = adapted.scores()
    adapted.publish(other_weights)
    with_checkpoint = adapted.scores()
    adapted.publish(adapters[0])
    again = adapted.scores()
    adapted.publish(POLICY)
    assert again == pytest.approx(with_adapter, abs=MAX_GAP)
    assert adapted.scores() == pytest.approx(as_started, abs=MAX_GAP)
    for one, other in ((with_adapter, as_started), (with_checkpoint, with_adapter)):
        assert max(map(abs_gap, one, other)) > 0.01


def test_weights_that_a_trainer_puts_there_itself_end_the_adapter(
    adapted: Adapted, adapters: list[Path], other_weights: Path
) -> None:
    adapted.publish(adapters[0])
    adapted.server.load_weights(other_weights)
    adapted.publish("")
    assert state_of(adapted.server).adapter == ""
    put_there = adapted.scores()
    adapted.publish(other_weights)
    assert adapted.scores() == pytest.approx(put_there, abs=MAX_GAP)
    adapted.publish(adapters[0])
    assert adapted.scores() == pytest.approx(
        adapted.truth(adapted.llm.prompt, adapters[:1])[0], abs=MAX_GAP
    )


def changed_config(adapter: Path, to: Path, **fields: Any) -> Path:
    shutil.copytree(adapter, to)
    config = json.loads((to / "adapter_config.json").read_text())
    (to / "adapter_config.json").write_text(json.dumps(config | fields))
    return to


def test_what_vllm_refuses_is_refused_with_advice_while_the_old_adapter_stays_in_force(
    adapted: Adapted, adapters: list[Path], tmp_path: Path
) -> None:
    adapted.publish(adapters[0])
    before, version = adapted.scores(), adapted.server.version()
    running = adapted.llm.begin(200)
    large = random_adapter(tmp_path / "large", POLICY, rank=32)
    with pytest.raises(InvalidMessage, match="rank 32 is greater than max_lora_rank 16") as refused:
        adapted.publish(large)
    assert "--max-lora-rank" in refused.value.fix
    if adapted.is_real:
        with pytest.raises(InvalidMessage, match="DoRA"):
            adapted.publish(changed_config(adapters[0], tmp_path / "dora", use_dora=True))
    choice = running.result(DEADLINE_SECONDS)
    assert {span["version"] for span in choice["weight_versions"]} == {str(version)}
    assert (adapted.server.version(), adapted.scores()) == (version, before)
    assert not adapted.server.paused()


def test_a_server_that_restarts_gets_the_adapter_of_the_day_and_no_label_before(
    adapted: Adapted, adapters: list[Path]
) -> None:
    adapted.publish(adapters[0])
    adapted.publish(adapters[1])
    before, version = adapted.scores(), adapted.updater.version
    adapted.mortal.die()
    adapted.mortal.start()
    assert adapted.server.version() is None
    assert adapted.updater.restore(adapted.updater.published)
    assert adapted.server.version() == version
    assert adapted.scores() == pytest.approx(before, abs=MAX_GAP)
    assert state_of(adapted.server).adapter == str(adapters[1])


def test_a_server_without_adapters_refuses_one_and_keeps_its_weights(
    scripted_llm: str, adapters: list[Path]
) -> None:
    server = LLMServer(scripted_llm)
    with pytest.raises(InvalidMessage, match="takes no adapters") as refused:
        WeightUpdater([server], model=POLICY).update(WeightUpdate(path=str(adapters[0]), version=1))
    assert "--enable-lora" in refused.value.fix
    assert (server.version(), server.paused()) == (0, False)


def test_through_the_proxy_requests_that_name_no_model_get_the_adapter(
    tmp_path: Path,
    start_proxy: StartProxy,
    adapters: list[Path],
    prompt: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    served = Adapted("scripted", tmp_path, prompt)
    try:
        proxy = start_proxy(served.llm.url)
        served.publish(adapters[0])
        (truth,) = served.truth([*prompt, 65], adapters[:1])
        named: tuple[dict[str, str], ...] = ({}, {"model": "policy"})
        for sent in named:
            sampling = {"max_tokens": 1, "prompt_logprobs": 0}
            body = {"token_ids": [*prompt, 65], "sampling_params": sampling, **sent}
            url = f"{proxy}/inference/v1/generate"
            answer = requests.post(url, json=body, timeout=DEADLINE_SECONDS).json()
            assert answer["prompt_logprobs"][-1]["65"]["logprob"] == pytest.approx(truth[-1])
    finally:
        served.mortal.die()
