"""What `launch/environment.sh` says where it cannot make an environment."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "launch" / "environment.sh"
TOOLS = ("sh", "dirname", "cat", "cksum", "date", "rm", "mv", "head", "grep")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with what the script needs, and no Python."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, f"this machine has no {tool}"
        (tmp_path / tool).symlink_to(found)
    return tmp_path


def make(tools: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), *names],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("services", "rollyard: Python 3.11 or newer is needed; install it"),
        ("llm", "rollyard: vLLM's CPU build needs Python 3.11; install it"),
        ("gpu", "rollyard: unknown environment 'gpu'; there are: services llm bench."),
    ],
)
def test_without_python_one_sentence_says_what_to_install(
    tools: Path, name: str, sentence: str
) -> None:
    answer = make(tools, name)
    assert answer.returncode == 1
    assert answer.stderr.startswith(sentence)
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "version"), [("services", "3.10"), ("llm", "3.12")])
def test_a_python_that_does_not_fit_is_as_good_as_none(
    tools: Path, name: str, version: str
) -> None:
    (tools / "python3").write_text(f"#!/bin/sh\necho {version}\n")
    (tools / "python3").chmod(0o755)
    answer = make(tools, name)
    assert answer.returncode == 1
    assert "Python 3.11" in answer.stderr
