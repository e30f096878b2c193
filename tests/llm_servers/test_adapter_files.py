"""What is refused of an adapter's files, before any LLM server hears of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors.numpy import load_file, save_file

from benchmarks.weights.adapter import random_adapter
from llm_servers.adapter_files import check_adapter, is_adapter
from llm_servers.adapter_place import AdapterPlace
from rollyard.errors import InvalidMessage, LaunchError
from tests.llm_fixtures import POLICY, MakeWeights

WEIGHTS = "adapter_model.safetensors"
QUERY = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return random_adapter(tmp_path / "adapter", POLICY)


def configure(adapter: Path, **fields: Any) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def with_factors(adapter: Path, module: str, outputs: int, inputs: int) -> None:
    """Have the adapter change this module, too, as one of these numbers of outputs and inputs."""
    factors = load_file(adapter / WEIGHTS)
    factors[f"{module}.lora_A.weight"] = numpy.zeros((8, inputs), numpy.float32)
    factors[f"{module}.lora_B.weight"] = numpy.zeros((outputs, 8), numpy.float32)
    save_file(factors, adapter / WEIGHTS)


def test_an_adapter_is_told_from_a_checkpoint_by_its_files(adapter: Path) -> None:
    assert is_adapter(adapter)
    assert not is_adapter(POLICY)
    assert not is_adapter(adapter / "missing")


def test_what_peft_saves_for_the_model_passes(adapter: Path) -> None:
    check_adapter(adapter, POLICY)
    with_factors(adapter, "base_model.model.lm_head", 261, 128)
    configure(adapter, base_model_name_or_path="some/name-of-the-hub")
    check_adapter(adapter, POLICY)


def test_the_class_by_which_the_trainer_loaded_the_model_does_not_matter(adapter: Path) -> None:
    module = "base_model.model.model.language_model.layers.3.mlp.up_proj"
    with_factors(adapter, module, 384, 128)
    check_adapter(adapter, POLICY)


@pytest.mark.parametrize(
    ("module", "outputs", "inputs", "problem"),
    [
        (QUERY, 64, 64, "a model of another size"),
        (QUERY, 128, 64, "a model of another size"),
        ("base_model.model.model.layers.4.self_attn.q_proj", 128, 128, "has not got"),
        ("base_model.model.model.layers.0.self_attn.c_attn", 128, 128, "has not got"),
    ],
)
def test_an_adapter_for_another_model_is_refused(
    adapter: Path, module: str, outputs: int, inputs: int, problem: str
) -> None:
    with_factors(adapter, module, outputs, inputs)
    with pytest.raises(InvalidMessage, match=problem) as refused:
        check_adapter(adapter, POLICY)
    assert "LLM servers were started with" in refused.value.fix


def test_an_adapter_trained_on_other_weights_of_the_same_shape_is_refused(
    adapter: Path, make_weights: MakeWeights
) -> None:
    other = make_weights(0.5)
    configure(adapter, base_model_name_or_path=str(other))
    with pytest.raises(InvalidMessage, match=f"for the model in {other}"):
        check_adapter(adapter, POLICY)


def test_an_adapter_for_the_head_of_a_model_that_ties_it_is_refused(
    adapter: Path, tmp_path: Path
) -> None:
    tied = shutil.copytree(POLICY, tmp_path / "tied")
    weights = load_file(tied / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tied / "model.safetensors")
    configure(adapter, base_model_name_or_path=None)
    check_adapter(adapter, tied)
    with_factors(adapter, "base_model.model.lm_head", 261, 128)
    with pytest.raises(InvalidMessage, match="changes lm_head, which the model in"):
        check_adapter(adapter, tied)


def test_an_adapter_of_another_type_or_without_safetensors_is_refused(adapter: Path) -> None:
    configure(adapter, peft_type="IA3")
    with pytest.raises(InvalidMessage, match="of the type IA3, not LORA"):
        check_adapter(adapter, POLICY)
    configure(adapter, peft_type="LORA", r="eight")
    with pytest.raises(InvalidMessage, match=r"adapter_config\.json cannot be read"):
        check_adapter(adapter, POLICY)
    configure(adapter, r=8)
    (adapter / WEIGHTS).unlink()
    with pytest.raises(InvalidMessage, match=r"it holds no adapter_model\.safetensors"):
        check_adapter(adapter, POLICY)


def test_a_place_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "place").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LaunchError, match="no place for adapters"):
        AdapterPlace.make(tmp_path / "place", POLICY)


def test_a_place_is_made_anew_with_an_adapter_that_fits_and_changes_nothing(
    tmp_path: Path, adapter: Path
) -> None:
    place = AdapterPlace.make(tmp_path / "place", POLICY)
    place.prepare(adapter)
    place.put(adapter)
    assert place.note.adapter == str(adapter)
    again = AdapterPlace.make(tmp_path / "place", POLICY)
    assert (again.note.adapter, again.note.base) == ("", "")
    check_adapter(again.path, POLICY)
    factors = load_file(again.path / WEIGHTS)
    assert len(factors) == 2
    assert not any(factor.any() for factor in factors.values())
