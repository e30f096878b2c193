"""Models whose output head is their input embedding: they are told from others by their files."""

import json
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import save_file

from llm_servers.checkpoint import check_updatable, check_weights
from rollyard.errors import InvalidMessage

EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(tmp_path, {}, EMBEDDING, "lm_head.weight")
    return tmp_path


def write(directory: Path, config: dict[str, object], *names: str) -> None:
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {name: numpy.zeros((2, 2), numpy.float32) for name in names}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "head",
    ["lm_head.weight", "embed_out.weight", "language_model.lm_head.weight", "lm_head.qweight"],
)
def test_a_model_with_a_head_of_its_own_may_be_updated(model: Path, head: str) -> None:
    write(model, {}, EMBEDDING, head)
    check_updatable(model)
    check_weights(model)


@pytest.mark.parametrize(
    "config",
    [
        {"tie_word_embeddings": True},
        {"text_config": {"tie_word_embeddings": True}},
    ],
)
def test_what_the_config_says_counts_whatever_the_weights_hold(
    model: Path, config: dict[str, object]
) -> None:
    write(model, config, EMBEDDING, "lm_head.weight")
    with pytest.raises(InvalidMessage, match="ties its embeddings"):
        check_weights(model)


@pytest.mark.parametrize("config", [{}, {"text_config": {}}, {"model_type": "gemma3"}])
def test_a_config_that_does_not_say_so_is_tied_if_the_weights_have_no_head(
    model: Path, config: dict[str, object]
) -> None:
    """As models that always tie them are saved."""
    write(model, config, EMBEDDING, "model.layers.0.attention.output.weight")
    with pytest.raises(InvalidMessage, match="ties its embeddings"):
        check_updatable(model)


def test_a_head_in_any_of_several_files_counts_where_a_config_contradicts_itself(
    model: Path,
) -> None:
    config = {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
    write(model, config, EMBEDDING)
    with pytest.raises(InvalidMessage, match="ties its embeddings"):
        check_weights(model)
    head = {"lm_head.weight": numpy.zeros((2, 2), numpy.float32)}
    save_file(head, model / "model-2.safetensors")
    check_weights(model)


def test_weights_that_are_none_are_named(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"half a fi")
    with pytest.raises(InvalidMessage, match=r"model\.safetensors cannot be read"):
        check_weights(model)
