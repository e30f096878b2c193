"""Checks of model and checkpoint directories before LLM servers load them."""

from pathlib import Path

from llm_servers.model_files import check_whole, read_config, ties_embeddings
from rollyard.messages import check


def check_model(path: Path) -> None:
    """Raise `InvalidMessage` if no server can be started with the model at `path`."""
    check(
        path.is_dir(),
        f"the model directory {path} does not exist",
        "give the directory that holds config.json and the weights",
    )
    check(
        (path / "config.json").is_file(),
        f"{path} is not a model directory: it holds no config.json",
        "give the directory that save_pretrained wrote",
    )
    _check_has_weights(path)
    read_config(path / "config.json")


def check_updatable(model: Path) -> None:
    """Raise `InvalidMessage` if the weights of `model` must not be updated."""
    # Measured on CPU: after a reload the old head stays in force, off by up to 3 nats.
    check(
        not ties_embeddings(model),
        f"the model in {model} ties its embeddings: vLLM would keep the old output head at every "
        "weight update, without an error",
        "to train it, serve and save it with tie_word_embeddings=false and an lm_head.weight of "
        "its own; sampling alone needs no change",
    )


def check_weights(path: Path) -> None:
    """Raise `InvalidMessage` if a running server must not load the weights at `path`."""
    check(
        path.is_dir(),
        f"no checkpoint at {path}: there is no such directory",
        "save the weights to a directory that the LLM servers can read",
    )
    _check_has_weights(path)
    check_whole(path)
    check_updatable(path)


def _check_has_weights(path: Path) -> None:
    check(
        any(path.glob("*.safetensors")),
        f"no weights in {path}: it holds no .safetensors file",
        "save the model there with save_pretrained",
    )
