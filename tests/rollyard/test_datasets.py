"""Datasets in files: rows of every format, and errors that say where."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import ipc, parquet

from rollyard.datasets import Dataset
from rollyard.errors import InvalidMessage

ROWS = [{"data_source": "math", "problem": f"{n}+{n}", "answer": str(2 * n)} for n in range(5)]


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, rows: list[Any]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    return path


def stream(path: Path, rows: list[Any]) -> Path:
    made = pyarrow.Table.from_pylist(rows)
    with ipc.new_stream(path, made.schema) as out:
        out.write_table(made)
    return path


@pytest.mark.parametrize(
    ("write", "suffix"), [(lines, "jsonl"), (table, "parquet"), (stream, "arrow")]
)
def test_every_format_gives_its_rows_again_and_again(
    tmp_path: Path, write: Any, suffix: str
) -> None:
    dataset = Dataset(write(tmp_path / f"rows.{suffix}", ROWS))
    assert list(dataset) == ROWS
    assert list(dataset) == ROWS


def test_a_folder_of_files_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    table(tmp_path / "data" / "train-00001-of-00002.parquet", ROWS[3:])
    table(tmp_path / "data" / "train-00000-of-00002.parquet", ROWS[:3])
    assert list(Dataset(tmp_path)) == ROWS


def test_what_save_to_disk_wrote_is_read_in_the_order_of_its_state(tmp_path: Path) -> None:
    stream(tmp_path / "b.arrow", ROWS[:2])
    stream(tmp_path / "a.arrow", ROWS[2:])
    state = {"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert list(Dataset(tmp_path)) == ROWS


def test_training_rows_are_not_mixed_with_others(tmp_path: Path) -> None:
    hub, saved = tmp_path / "hub", tmp_path / "saved"
    for split in ("train", "test"):
        (saved / split).mkdir(parents=True)
        hub.mkdir(exist_ok=True)
        table(hub / f"{split}-00000-of-00001.parquet", ROWS)
        stream(saved / split / "data-00000-of-00001.arrow", ROWS)
    (saved / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for path in (hub, saved):
        with pytest.raises(InvalidMessage, match="several datasets: test, train; give the file or"):
            Dataset(path)
    assert list(Dataset(hub / "train-00000-of-00001.parquet")) == ROWS
    assert list(Dataset(saved / "train")) == ROWS


def test_a_column_of_json_strings_is_the_rows(tmp_path: Path) -> None:
    packed = [{"instance": json.dumps(row), "extra": 1} for row in ROWS]
    assert list(Dataset(table(tmp_path / "rows.parquet", packed))) == ROWS


def test_a_row_in_a_column_may_have_its_environment_beside_it(tmp_path: Path) -> None:
    packed = [{"instance": {"problem": "1+1"}, "data_source": "math"}]
    path = lines(tmp_path / "rows.jsonl", packed)
    rows = [{"problem": "1+1", "data_source": "math"}]
    assert list(Dataset(path, data_source="code")) == rows


def test_a_byte_order_mark_is_no_part_of_a_row(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(Dataset(path)) == ROWS


def test_rows_without_an_environment_get_the_one_that_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", [{"problem": "1+1"}])
    assert list(Dataset(path, data_source="math")) == [{"problem": "1+1", "data_source": "math"}]
    with pytest.raises(InvalidMessage, match=r"rows\.jsonl:1 has no data_source"):
        list(Dataset(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"data_source": "math"}\n{"data', r"rows\.jsonl:2 is not JSON"),
        ("\n[1]\n", r"rows\.jsonl:2 is no row"),
        ('\n{"data_source": "\xe4"}', r"rows\.jsonl:2 is not JSON: 'utf-8' codec"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidMessage, match=reason):
        list(Dataset(path))


def test_a_spoilt_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidMessage, match=r"cannot read .*rows\.parquet"):
        list(Dataset(path))


def test_where_there_is_no_dataset_it_is_said_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "rows.csv"):
        with pytest.raises(InvalidMessage, match="no dataset at"):
            Dataset(path)
