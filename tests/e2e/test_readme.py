"""The README's training loop runs as it is written."""

import re
import subprocess
import sys
from pathlib import Path

from tests.yard_fixtures import RunningYard

README = Path(__file__).parents[2] / "README.md"
PRINTED = re.compile(r"^\d \[[01]\.0(, [01]\.0){7}\]$")


def test_the_training_loop_of_the_readme_runs_as_written(scripted_yard: RunningYard) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "http://127.0.0.1:8005" in code
    loop = subprocess.run(
        [sys.executable, "-c", code.replace("http://127.0.0.1:8005", scripted_yard.url)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert loop.returncode == 0, loop.stderr
    assert [bool(PRINTED.match(line)) for line in loop.stdout.splitlines()] == [True] * 3
