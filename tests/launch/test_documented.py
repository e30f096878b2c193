"""docs/command-line.md says what the commands do."""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from launch.commands import app

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
WITHOUT_JSON = {
    "demo",
    "down",
    "kubernetes keep",
    "kubernetes render",
    "kubernetes secret",
    "llm",
    "node",
    "ray",
    "rewards",
    "up",
    "slurm beside",
    "slurm beside-node",
    "slurm logs",
    "slurm render",
    "slurm run",
}


def test_the_json_of_every_command_is_described() -> None:
    rows = re.findall(r"^\| (`[a-z`, ]+`) \|", PAGE, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row)}
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    groups = [name for name, command in commands.items() if hasattr(command, "commands")]
    grouped = {f"{group} {name}" for group in groups for name in commands.pop(group).commands}
    assert described == (set(commands) | grouped) - WITHOUT_JSON
