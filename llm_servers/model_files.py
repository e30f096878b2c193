"""Settings that services read from a model directory."""

import struct
from pathlib import Path

import msgspec

from rollyard.codec import learnt
from rollyard.errors import InvalidMessage
from rollyard.messages import check

_HEADS = frozenset({"lm_head", "embed_out", "output", "output_layer"})
"""What models call their output head."""
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 100 * 2**20
INDEX = "model.safetensors.index.json"
"""What names the files of weights that are in several."""


class TextConfig(msgspec.Struct, frozen=True):
    """The part of config.json that is about the language model of several."""

    tie_word_embeddings: bool | None = None


class ModelConfig(msgspec.Struct, frozen=True):
    """The part of config.json and generation_config.json that matters here."""

    eos_token_id: int | tuple[int, ...] | None = None
    tie_word_embeddings: bool | None = None
    """None if it is not said: kinds of models differ in what that means."""
    text_config: TextConfig | None = None


class StoredTensor(msgspec.Struct, frozen=True):
    """What a .safetensors file says of a tensor."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (0, 0)
    """Its first byte, and the one after its last, counted from the end of the header."""


class WeightIndex(msgspec.Struct, frozen=True):
    """The part of `INDEX` that matters here."""

    weight_map: dict[str, str] = {}
    """Name of a tensor -> file that has it."""


def read_config(path: Path) -> ModelConfig | None:
    """The settings in a file; None if there is no such file. Raises `InvalidMessage`."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=learnt(ModelConfig))
    except msgspec.MsgspecError as error:
        problem = f"{path} cannot be read: {error}"
        raise InvalidMessage(problem, fix="save the model again") from error


def ties_embeddings(path: Path) -> bool:
    """Whether the output head of the model or checkpoint at `path` is its input embedding. Raises
    `InvalidMessage` if that cannot be read."""
    config = read_config(path / "config.json")
    if config is None:
        return False
    inner = config.text_config.tie_word_embeddings if config.text_config else None
    said = {config.tie_word_embeddings, inner} - {None}
    if len(said) == 1:
        return bool(said.pop())
    # Files do not say what is usual for their kind of model; a tied head is not among the weights.
    names = tensor_names(path)
    return bool(names) and not any(_is_head(name) for name in names)


def tensor_names(path: Path) -> frozenset[str]:
    """The names of all tensors in the .safetensors files at `path`. Raises `InvalidMessage`."""
    return frozenset(tensors_of(path))


def tensors_of(path: Path) -> dict[str, StoredTensor]:
    """All tensors in the .safetensors files at `path`, by name. Raises `InvalidMessage`."""
    return {
        name: tensor
        for file in sorted(path.glob("*.safetensors"))
        for name, tensor in _tensors_in(file).items()
    }


def names_of_modules(path: Path) -> tuple[str, ...]:
    """What the modules with matrices are called, the output head apart. None for a model of
    experts, whose files cut them up in another way than a server does."""
    matrices = [name for name, tensor in tensors_of(path).items() if len(tensor.shape) > 1]
    if any("experts" in name.split(".") for name in matrices):
        return ()
    return tuple(sorted({name.split(".")[-2] for name in matrices if not _is_head(name)}))


def check_whole(path: Path) -> None:
    """Raise `InvalidMessage` if the weights at `path` are not all there, as while they are
    written, or where a disk was full."""
    for file in sorted(path.glob("*.safetensors")):
        tensors, begin = _header(file)
        size = begin + max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
        check(
            file.stat().st_size == size,
            f"{file} has {file.stat().st_size} bytes, and should have {size}",
            "publish weights once all of them are written; save these again",
        )
    for name in sorted(_indexed_files(path / INDEX)):
        check(
            (path / name).is_file(),
            f"{path} lacks {name}, which its {INDEX} names",
            "publish weights once all of them are written; save these again",
        )


def _indexed_files(index: Path) -> set[str]:
    """The files that an index names; none if there is no index."""
    if not index.is_file():
        return set()
    try:
        told = msgspec.json.decode(index.read_bytes(), type=learnt(WeightIndex))
    except (OSError, msgspec.MsgspecError) as error:
        raise _unreadable(index, error) from error
    return set(told.weight_map.values())


def _tensors_in(file: Path) -> dict[str, StoredTensor]:
    return _header(file)[0]


def _header(file: Path) -> tuple[dict[str, StoredTensor], int]:
    """The tensors in a file, and its first byte behind the header. Raises `InvalidMessage`."""
    try:
        with file.open("rb") as opened:
            (length,) = _LENGTH.unpack(opened.read(_LENGTH.size))
            header = opened.read(min(length, _MAX_HEADER_BYTES))
        told = msgspec.json.decode(header, type=learnt(dict[str, StoredTensor]))
    except (OSError, struct.error, msgspec.MsgspecError) as error:
        raise _unreadable(file, error) from error
    told.pop("__metadata__", None)
    return told, _LENGTH.size + length


def _unreadable(file: Path, error: Exception) -> InvalidMessage:
    return InvalidMessage(f"{file} cannot be read: {error}", fix="save the weights again")


def _is_head(name: str) -> bool:
    *parents, head, _ = ("", *name.split("."))
    return head in _HEADS and not any(part.isdigit() for part in parents)


def end_tokens(model: Path) -> tuple[int, ...]:
    """The tokens that end a response according to the model's files, as vLLM reads them:
    config.json counts only if there is no generation_config.json. Raises `InvalidMessage`."""
    config = read_config(model / "generation_config.json") or read_config(model / "config.json")
    ends = config.eos_token_id if config is not None else None
    return (ends,) if isinstance(ends, int) else ends or ()
