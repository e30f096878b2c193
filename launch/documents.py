"""Structures in files of JSON, which the nodes of a fleet write for each other.

A file is replaced as a whole: no reader sees half of it.
"""

import secrets
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rollyard.codec import learnt
from rollyard.errors import LaunchError

T = TypeVar("T")


def write_document(path: Path, document: msgspec.Struct) -> None:
    write_whole(path, as_text(document))


def read_document(path: Path, kind: type[T], *, fix: str) -> T:
    """What the file holds. Raises `LaunchError`, with what to do about it."""
    try:
        return from_text(path.read_text(), kind)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise LaunchError(f"cannot read {path}: {error}", fix=fix) from error


def as_text(document: msgspec.Struct) -> str:
    """The structure as it is written."""
    written = msgspec.json.encode(document, enc_hook=str)
    return msgspec.json.format(written, indent=2).decode() + "\n"


def from_text(text: str, kind: type[T]) -> T:
    """The structure that was written so. Raises `MsgspecError`."""
    return msgspec.json.decode(text, type=learnt(kind), dec_hook=_path)


def write_whole(path: Path, text: str) -> None:
    """Write a file that readers see as it was, or as it is to be."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")  # others may write at once
    try:
        beside.write_text(text)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _path(kind: type, value: Any) -> Any:
    assert kind is Path
    return Path(value)
