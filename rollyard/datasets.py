"""Rows of datasets in files: JSONL, parquet, and directories of Hugging Face `datasets`.

Rows are read as they are drawn, in the order of the files. A column that holds rows as JSON
strings, such as `instance`, is decoded. pyarrow comes with `pip install rollyard[datasets]`; JSONL
needs nothing.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rollyard.errors import InvalidMessage

_ROW_COLUMN = "instance"
_SUFFIXES = (".jsonl", ".parquet", ".arrow")
# A part of a dataset in several files, as Hugging Face names them.
_PART = re.compile(r"(.+)-\d{5}-of-\d{5}\.\w+")
_FIX = "give a file .jsonl or .parquet, a directory of them, or one that save_to_disk() wrote"


class Dataset:
    """An iterable of rows. It can be iterated again, and passed to `Client.run`.

    `data_source` names the environment of rows that name none themselves. Raises `InvalidMessage`
    where there is no such file, and for a row that cannot be read, with its file and number.
    """

    def __init__(self, path: str | Path, *, data_source: str = "") -> None:
        self.files = _files(Path(path))
        self._data_source = data_source

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            read = _read_lines if file.suffix == ".jsonl" else _read_table
            for number, row in read(file):
                yield self._whole(row, f"{file}:{number}")

    def _whole(self, row: Any, where: str) -> dict[str, Any]:
        """The row with its data_source."""
        data_source = self._data_source
        if isinstance(row, dict) and _ROW_COLUMN in row:
            data_source = row.get("data_source") or data_source
            row = _decoded(row[_ROW_COLUMN], where)
        if not isinstance(row, dict):
            raise InvalidMessage(f"{where} is no row: {str(row)[:100]!r}", fix="a row is an object")
        if not row.get("data_source"):
            if not data_source:
                raise InvalidMessage(
                    f"{where} has no data_source",
                    fix="name the environment there, or with Dataset(..., data_source=NAME)",
                )
            return row | {"data_source": data_source}
        return dict(row)


def _files(path: Path) -> tuple[Path, ...]:
    """The files of the dataset in order. Raises `InvalidMessage`."""
    if path.is_file():
        found = [path] if path.suffix in _SUFFIXES else []
    elif (state := path / "state.json").is_file():  # written by save_to_disk()
        listed = json.loads(state.read_text())["_data_files"]
        found = [path / each["filename"] for each in listed]
    else:
        found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
        _check_one_split(path, found)
    if not found:
        raise InvalidMessage(f"no dataset at {path}", fix=_FIX)
    return tuple(found)


def _check_one_split(path: Path, files: Iterable[Path]) -> None:
    """Raise `InvalidMessage` for a directory that has data to train on, and to test with."""
    splits = {part[1] for file in files if (part := _PART.fullmatch(file.name))}
    if (path / "dataset_dict.json").is_file():  # save_to_disk() of several datasets
        splits = {file.relative_to(path).parts[0] for file in files}
    if len(splits) > 1:
        raise InvalidMessage(
            f"{path} has several datasets: {', '.join(sorted(splits))}",
            fix="give the file or the directory of the one to train on",
        )


def _read_lines(file: Path) -> Iterator[tuple[int, Any]]:
    """(line, row) pairs of a JSONL file, whose lines count from 1."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _decoded(line, f"{file}:{number}")


def _read_table(file: Path) -> Iterator[tuple[int, Any]]:
    """(number, row) pairs of a parquet or arrow file, whose rows count from 1."""
    try:
        import pyarrow
    except ImportError as error:
        raise InvalidMessage(
            f"{file} needs pyarrow to be read", fix="pip install 'rollyard[datasets]'"
        ) from error
    try:
        yield from enumerate(_table_rows(file), 1)
    except pyarrow.ArrowException as error:
        raise InvalidMessage(f"cannot read {file}: {error}", fix=_FIX) from error


def _table_rows(file: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import ipc, parquet

    if file.suffix == ".parquet":
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    else:
        with pyarrow.memory_map(str(file)) as source:
            for batch in ipc.open_stream(source):
                yield from batch.to_pylist()


def _decoded(value: Any, where: str) -> Any:
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:  # also for a byte that is no UTF-8
        raise InvalidMessage(f"{where} is not JSON: {error}", fix="a line is one object") from error
