"""Checks of model and checkpoint directories before LLM servers load them."""

from pathlib import Path

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """Reason why a directory cannot be loaded, and what to do about it."""

    message: str
    fix: str


class _Config(msgspec.Struct, frozen=True):
    """The part of a model's config.json that matters here."""

    tie_word_embeddings: bool = False


def problem_with_model(path: Path) -> Problem | None:
    """The reason why no server can be started with the model at `path`; None if one can."""
    if not path.is_dir():
        return Problem(
            f"the model directory {path} does not exist",
            "give the directory that holds config.json and the weights",
        )
    if not (path / "config.json").is_file():
        return Problem(
            f"{path} is not a model directory: it holds no config.json",
            "give the directory that save_pretrained wrote",
        )
    if not any(path.glob("*.safetensors")):
        return _no_weights(path)
    config = _config(path / "config.json")
    return config if isinstance(config, Problem) else None


def problem_with_updating(model: Path) -> Problem | None:
    """The reason why the weights of `model` must not be updated; None if they may be."""
    config = model / "config.json"
    return _problem_with_config(config) if config.is_file() else None


def problem_with_weights(path: Path) -> Problem | None:
    """The reason why a running server must not load the weights at `path`; None if it may."""
    if not path.is_dir():
        return Problem(
            f"no checkpoint at {path}: there is no such directory",
            "save the weights to a directory that the LLM servers can read",
        )
    if not any(path.glob("*.safetensors")):
        return _no_weights(path)
    return problem_with_updating(path)


def _no_weights(path: Path) -> Problem:
    return Problem(
        f"no weights in {path}: it holds no .safetensors file",
        "save the model there with save_pretrained",
    )


def _config(path: Path) -> _Config | Problem:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Config)
    except msgspec.MsgspecError as error:
        return Problem(f"{path} cannot be read: {error}", "save the model again")


def _problem_with_config(path: Path) -> Problem | None:
    config = _config(path)
    if isinstance(config, Problem):
        return config
    if config.tie_word_embeddings:
        # Measured on CPU: after a reload the old head stays in force, off by up to 3 nats.
        return Problem(
            f"the model in {path.parent} ties its embeddings: vLLM would keep the old output head "
            "at every weight update, without an error",
            "to train it, serve and save it with tie_word_embeddings=false and an lm_head.weight "
            "of its own; sampling alone needs no change",
        )
    return None
