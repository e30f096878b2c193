"""The environment of docs/environments.md works as it is written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_server.environments.protocol import declared_needs

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands(step: str) -> str:
    """The indented lines of a step of the tutorial."""
    plain = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    (text,) = re.findall(rf"\*\*{step}\.\*\*(.*?)(?=\n\*\*|\n## )", plain, re.DOTALL)
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def run(script: str, directory: Path) -> str:
    done = subprocess.run(
        ["/bin/bash", "-euc", script], cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tutorial_makes_proves_and_plays_an_environment(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(BIN.parent)
    run(commands("1. A package"), tmp_path)
    (tmp_path / "brief" / "brief.py").write_text(blocks("python")[0])
    run(blocks("sh")[0], tmp_path)
    assert "16 rows, 0 with a problem" in run(commands("2. Proof"), tmp_path)
    played = run(commands("3. A look"), tmp_path / "brief")
    assert "user:\n12*21\nassistant:\n252\n" in played
    assert "reward 0.9: 3 characters" in played


def test_the_tutorials_environment_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) <= 40


def test_needs_are_declared_as_it_is_written() -> None:
    names: dict[str, Any] = {}
    (code,) = (block for block in blocks("python") if "class Repository" in block)
    exec(code, names)
    assert declared_needs(names["Repository"]).tags == ("h100",)
