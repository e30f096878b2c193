"""docs/command-line.md says what the commands do."""

import re
from pathlib import Path

from typer.main import get_command

from launch.commands import app

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
WITHOUT_JSON = {"demo", "down", "up"}


def test_the_json_of_every_command_is_described() -> None:
    rows = re.findall(r"^\| (`[a-z`, ]+`) \|", PAGE, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"[a-z]+", row)}
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert described == commands - WITHOUT_JSON
