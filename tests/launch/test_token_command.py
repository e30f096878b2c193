"""`rollyard token`, as an operator uses it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from launch.commands import app
from rollyard.tokens import Role, make_token_file, read_tokens


def test_an_operator_makes_a_token_for_a_run_and_sees_none(tmp_path: Path) -> None:
    make_token_file(tmp_path / "tokens")
    command = ["token", "submit", "--run", "train", "--to", str(tmp_path / "theirs")]
    command += ["--into", str(tmp_path / "tokens"), "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    said = json.loads(result.stdout)
    assert said == {"role": "submit", "runs": ["train"], "token_file": str(tmp_path / "theirs")}
    (made,) = read_tokens(tmp_path / "theirs")
    assert (made.role, made.runs) == (Role.SUBMIT, frozenset(["train"]))
    assert made.token not in result.output
