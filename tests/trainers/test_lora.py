"""The example of LoRA trains: PEFT's own adapter, a real policy, real losses."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from peft import PeftModel
from safetensors.torch import load_file

from examples import lora
from tests.examples.fake_rollyard import FakeClient, FakeLLM, FakeRun

STEPS = 2


class AdaptedLLM(FakeLLM):
    """Serves the model that it was started with, changed by the adapter that was published."""

    def __init__(self, policy_dir: Path) -> None:
        self.model = policy_dir
        super().__init__(policy_dir)

    def load(self, path: Path) -> None:
        super().load(self.model)
        if path != self.model:
            self.policy = PeftModel.from_pretrained(self.policy, str(path)).merge_and_unload()


class Trained(NamedTuple):
    runs: list[FakeRun]
    """Those of evaluation before and after, and between them that of training."""
    published: Path
    calls_the_tool: tuple[float, float]
    """Logprob of the first token of a call, as served before and after."""


@pytest.fixture(scope="module")
def trained(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    llm, checkpoints = AdaptedLLM(policy_dir), tmp_path_factory.mktemp("checkpoints")
    client, before = FakeClient(llm), llm.logprob_of_a_call()
    lora.train(client, policy_dir, checkpoints, STEPS)
    published = checkpoints / f"version-{STEPS + 1}"
    return Trained(list(client.runs.values()), published, (before, llm.logprob_of_a_call()))


def test_what_is_served_has_learned_to_call_the_tool(trained: Trained) -> None:
    before, after = trained.calls_the_tool
    assert after > before


def test_each_step_publishes_the_adapter_and_acknowledges_its_batch(trained: Trained) -> None:
    run = trained.runs[0]
    assert [version for _, version in run.updates] == list(range(1, STEPS + 2))
    assert run.acknowledged == run.requested[:STEPS]
    assert run.closed


def test_the_adapter_alone_is_published_in_pefts_format(trained: Trained, policy_dir: Path) -> None:
    config = json.loads((trained.published / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(policy_dir.resolve())
    factors = load_file(trained.published / "adapter_model.safetensors")
    assert all(".lora_A." in name or ".lora_B." in name for name in factors)
    assert all(factor.any() for factor in factors.values())
    assert not (trained.published / "model.safetensors").exists()


def test_it_is_one_page() -> None:
    assert len(Path(lora.__file__).read_text().splitlines()) <= 90
