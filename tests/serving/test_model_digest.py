"""What tells two models apart, without reading all of them."""

import os
import shutil
from pathlib import Path

import pytest

from serving.model_digest import SAMPLE_BYTES, model_digest
from tests.llm_fixtures import POLICY


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(POLICY, tmp_path / "copy"))


def test_copies_of_a_model_are_the_same_model(copy: Path) -> None:
    (copy / "README.md").write_text("ours")
    assert model_digest(copy) == model_digest(POLICY) != ""


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
)
def test_another_tokenizer_template_or_configuration_is_another_model(
    copy: Path, name: str
) -> None:
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    assert model_digest(copy) != model_digest(POLICY)


@pytest.mark.parametrize("place", [0, -1])
def test_other_weights_are_another_model(copy: Path, place: int) -> None:
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[place] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert model_digest(copy) != model_digest(POLICY)


def test_of_large_weights_little_is_read(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as weights:
        os.truncate(weights.fileno(), 2**40)  # a sparse TiB
    before = model_digest(tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as weights:
        weights.seek(2**40 - SAMPLE_BYTES)
        weights.write(b"1")
    assert model_digest(tmp_path) != before


def test_a_directory_without_a_model_has_no_digest(tmp_path: Path) -> None:
    assert model_digest(tmp_path) == ""
