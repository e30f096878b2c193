"""What commands print: tables for a terminal, whole columns for a pipe, one object of JSON."""

import json

import pytest
from rich.text import Text

from launch.output import Listing, printable, show

LONG = "run-with-a-rather-long-name/" + "p" * 120 + "/7"


@pytest.fixture
def listing() -> Listing:
    made = Listing("job", "state", "reason", title="Jobs")
    made.add(LONG, Text("dead", style="red"), "first line\n[/second]\tline")
    made.add("short", "queued", "")
    return made


def test_a_pipe_gets_whole_ids_in_columns_apart_by_tabs(
    listing: Listing, capsys: pytest.CaptureFixture[str]
) -> None:
    show({}, [listing], json=False)
    assert capsys.readouterr().out.split("\n") == [
        "job\tstate\treason",
        f"{LONG}\tdead\tfirst line [/second] line",
        "short\tqueued\t",
        "",
    ]


def test_a_terminal_gets_a_table_with_its_title(
    listing: Listing, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show({}, [listing], json=False)
    said = capsys.readouterr().out
    assert "Jobs" in said
    assert LONG in said
    assert "[/second]" in said


def test_a_script_gets_one_line_of_json(
    listing: Listing, capsys: pytest.CaptureFixture[str]
) -> None:
    show({"jobs": [LONG]}, [listing], json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"jobs": [LONG]}


def test_control_characters_that_a_policy_wrote_are_spelled_out() -> None:
    assert printable("a\x1b[2J\tb\nc\x07é") == "a\\x1b[2J\tb\nc\\x07é"


def test_what_people_see_is_not_made_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    show({}, (str(1 / 0) for _ in "x"), json=True)
    assert capsys.readouterr().out == "{}\n"
