"""Settings that services read from a model directory."""

from pathlib import Path

import msgspec

from rollyard.errors import InvalidMessage


class _Config(msgspec.Struct, frozen=True):
    """The part of generation_config.json and config.json that matters here."""

    eos_token_id: int | tuple[int, ...] | None = None


def end_tokens(model: Path) -> tuple[int, ...]:
    """The tokens that end a response according to the model's files, as vLLM reads them:
    config.json counts only if there is no generation_config.json. Raises `InvalidMessage`."""
    for name in ("generation_config.json", "config.json"):
        path = model / name
        if not path.is_file():
            continue
        try:
            ends = msgspec.json.decode(path.read_bytes(), type=_Config).eos_token_id
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"{path} cannot be read: {error}") from error
        return (ends,) if isinstance(ends, int) else ends or ()
    return ()
