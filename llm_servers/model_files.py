"""Settings that services read from a model directory."""

from pathlib import Path

import msgspec

from rollyard.codec import learnt
from rollyard.errors import InvalidMessage


class ModelConfig(msgspec.Struct, frozen=True):
    """The part of config.json and generation_config.json that matters here."""

    eos_token_id: int | tuple[int, ...] | None = None
    tie_word_embeddings: bool = False


def read_config(path: Path) -> ModelConfig | None:
    """The settings in a file; None if there is no such file. Raises `InvalidMessage`."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=learnt(ModelConfig))
    except msgspec.MsgspecError as error:
        problem = f"{path} cannot be read: {error}"
        raise InvalidMessage(problem, fix="save the model again") from error


def end_tokens(model: Path) -> tuple[int, ...]:
    """The tokens that end a response according to the model's files, as vLLM reads them:
    config.json counts only if there is no generation_config.json. Raises `InvalidMessage`."""
    config = read_config(model / "generation_config.json") or read_config(model / "config.json")
    ends = config.eos_token_id if config is not None else None
    return (ends,) if isinstance(ends, int) else ends or ()
