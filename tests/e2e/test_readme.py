"""The training loops of the README and of docs/trainers.md run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from launch.commands import app
from tests.deployment_fixtures import RunningDeployment

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()
URL = "http://127.0.0.1:8005"
REWARDS = re.compile(r"^\d \[[01]\.0(, [01]\.0){7}\]$")
AGES = re.compile(r"^\d 2 \{.+\}$")


@pytest.mark.parametrize(
    ("page", "printed"), [("README.md", REWARDS), ("docs/trainers.md", AGES)], ids=str
)
def test_a_training_loop_runs_as_written(
    lasting_deployment: RunningDeployment, page: str, printed: re.Pattern[str]
) -> None:
    code = re.findall(r"```python\n(.*?)```", (CHECKOUT / page).read_text(), re.DOTALL)[0]
    assert URL in code
    loop = subprocess.run(
        [sys.executable, "-c", code.replace(URL, lasting_deployment.url)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert loop.returncode == 0, loop.stderr
    assert [bool(printed.match(line)) for line in loop.stdout.splitlines()] == [True] * 3


def test_every_command_that_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"^    \S*bin/rollyard ([a-z]+)", README, re.MULTILINE))
    assert {"up", "status", "jobs", "show"} <= shown
    assert shown <= set(get_command(app).commands)  # type: ignore[attr-defined]
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^    make ([a-z-]+)", README, re.MULTILINE)) <= targets


def test_the_quickest_start_comes_first_and_is_what_the_loop_runs_on() -> None:
    """The deployment of these tests is started by the same command."""
    quick = README.index(".venv/bin/rollyard up --llm scripted")
    assert quick < README.index("```python") < README.index("make demo")
