"""What `make test` does with tests that fail."""

import subprocess
import sys
from pathlib import Path

import pytest

ONCE_MORE = Path(__file__).parents[1] / "once_more.sh"
FAILS = "def test_{name}():\n    assert False\n"
FAILS_ONCE = """
from pathlib import Path

def test_once():
    mark = Path(__file__).with_suffix(".ran")
    ran, _ = mark.exists(), mark.touch()
    assert ran
"""


def ended(directory: Path, *tests: str) -> tuple[int, str]:
    """Exit status, and what was said on stderr."""
    (directory / "test_these.py").write_text("\n".join(tests))
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "test_these.py"]
    ran = subprocess.run(
        ["sh", ONCE_MORE, "these", *command], cwd=directory, capture_output=True, text=True
    )
    return ran.returncode, ran.stderr


def test_one_that_passes_alone_is_named_and_does_not_fail_the_whole(tmp_path: Path) -> None:
    status, said = ended(tmp_path, FAILS_ONCE, "def test_passes():\n    pass\n")
    assert status == 0
    assert "Passed alone" in said
    assert "test_these.py::test_once" in said
    assert "test_passes" not in said


def test_one_that_fails_alone_fails_the_whole(tmp_path: Path) -> None:
    status, said = ended(tmp_path, FAILS_ONCE, FAILS.format(name="ever"))
    assert status == 1
    assert "Passed alone" not in said


def test_many_that_fail_are_no_accident(tmp_path: Path) -> None:
    status, said = ended(tmp_path, *(FAILS.format(name=name) for name in "abcd"))
    assert status == 1
    assert "4 tests failed" in said


@pytest.mark.parametrize(
    "tests", ["no python", "import a_module_that_is_not_there"], ids=["syntax", "import"]
)
def test_what_cannot_be_collected_fails_the_whole(tmp_path: Path, tests: str) -> None:
    status, said = ended(tmp_path, tests)
    assert status == 2
    assert "Passed alone" not in said


def test_what_was_noted_by_a_run_before_is_not_run_again(tmp_path: Path) -> None:
    assert ended(tmp_path, FAILS.format(name="ever"))[0] == 1
    status, said = ended(tmp_path, "def test_passes():\n    pass\n")
    assert (status, said) == (0, "")
