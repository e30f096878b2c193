"""Structures in files of JSON, which the nodes of a fleet write for each other.

A file is replaced as a whole: no reader sees half of it.
"""

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rollyard.codec import learnt
from rollyard.errors import LaunchError

T = TypeVar("T")


def write_document(path: Path, document: msgspec.Struct) -> None:
    write_whole(path, msgspec.json.encode(document, enc_hook=str).decode())


def read_document(path: Path, kind: type[T], *, fix: str) -> T:
    """What the file holds. Raises `LaunchError`, with what to do about it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=learnt(kind), dec_hook=_path)
    except (OSError, msgspec.MsgspecError) as error:
        raise LaunchError(f"cannot read {path}: {error}", fix=fix) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file that readers see as it was, or as it is to be."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)


def _path(kind: type, value: Any) -> Any:
    assert kind is Path
    return Path(value)
