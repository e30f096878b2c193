"""Rows that were made for an image, in sandboxes of that image."""

import ast
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import EnvironmentFailed
from agent_server.environments.swe.environment import Swe
from agent_server.repositories import NO_REPOSITORIES
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox
from agent_server.sandbox.settings import SandboxSettings
from agent_server.tools.editor import Editor
from rollyard.errors import InvalidMessage
from tests.agent_server.environments.swe.images import NEEDS_MORE, R2E_GYM, SWE_GYM, make_images
from tests.agent_server.environments.swe.projects import CODE, FIXED, begun
from tests.llm_fixtures import ROOT

Begin = Callable[[dict[str, Any]], tuple[InThread, Sandbox]]
"""Begins an episode of a row in a sandbox of its image."""

FAMILIES = pytest.mark.parametrize("row", [SWE_GYM, R2E_GYM], ids=["SWE-Gym", "R2E-Gym"])
INSIDE = ROOT / "agent_server" / "environments" / "swe" / "inside"


@pytest.fixture(scope="module")
def images() -> Iterator[Bubblewrap]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        maker = Bubblewrap(SandboxSettings(sources=make_images(Path(directory))))
        yield maker
        maker.close()


@pytest.fixture
def begin(images: Bubblewrap) -> Iterator[Begin]:
    with ExitStack() as held:

        def begin(row: dict[str, Any]) -> tuple[InThread, Sandbox]:
            needs = Swe.needs.sandbox_for(row)
            assert needs is not None
            sandbox = held.enter_context(images.open(needs))
            return begun({"instance_id": "1", **row}, NO_REPOSITORIES, sandbox)[0], sandbox

        yield begin


def output(sandbox: Sandbox, command: str) -> list[str]:
    return sandbox.bash(f"cd /testbed; {command}", deadline_seconds=20).output.split()


@FAMILIES
def test_the_solution_is_rewarded(begin: Begin, row: dict[str, Any]) -> None:
    episode, _ = begin(row)
    episode.solve()
    grade = episode.grade()
    assert (grade.reward, grade.metrics["files_changed"]) == (1.0, 1.0), grade.reason


@FAMILIES
def test_what_repairs_nothing_is_not(begin: Begin, row: dict[str, Any]) -> None:
    episode, sandbox = begin(row)
    assert episode.grade().reason == "the agent changed nothing"
    sandbox.write("/testbed/unused.py", b"pass\n")
    grade = episode.grade()
    assert (grade.reward, grade.metrics["files_changed"]) == (0.0, 1.0)
    assert "(failed)" in grade.reason


@FAMILIES
def test_the_agent_finds_neither_the_fix_nor_its_tests(begin: Begin, row: dict[str, Any]) -> None:
    _, sandbox = begin(row)
    objects = "git cat-file --batch-all-objects --batch-check"
    assert output(sandbox, f"git rev-list --all --reflog | wc -l; {objects} | grep -c commit") == [
        *("1", "1")
    ]
    assert output(sandbox, "git tag; git branch --format '%(refname:short)'") == ["main"]
    assert not output(sandbox, "git status --porcelain")
    assert not output(sandbox, "find /testbed /r2e_tests /root -name 'test_1.py' 2> /dev/null")
    assert not output(sandbox, "find /testbed -name run_tests.sh")


@FAMILIES
def test_the_agent_has_the_python_of_the_image(begin: Begin, row: dict[str, Any]) -> None:
    _, sandbox = begin(row)
    assert output(sandbox, "python3 -c 'import adding; print(adding.add(2, 3))'") == ["-1"]
    assert sandbox.bash("exit", deadline_seconds=20).restarted
    assert output(sandbox, "python3 -c 'import installed; print(1)'") == ["1"]


def test_the_agent_has_the_editor_beside_the_image(begin: Begin) -> None:
    episode, sandbox = begin(SWE_GYM)
    edit = {"command": "str_replace", "path": "/testbed/adding.py"}
    said = Editor().call({**edit, "old_str": "a - b", "new_str": "a + b"}, sandbox)
    assert "has been edited" in said
    assert episode.grade().reward == 1.0


def test_what_is_ignored_or_of_the_interpreter_is_no_part_of_the_work(begin: Begin) -> None:
    episode, sandbox = begin(R2E_GYM)
    sandbox.write("/testbed/adding.py", (FIXED + NEEDS_MORE).encode())
    for path in ("built.py", ".venv/lib/more.py", "tracked.py"):
        sandbox.write(f"/testbed/{path}", b"raise SystemExit(0)")
    grade = episode.grade()
    assert (grade.reward, grade.metrics["files_changed"]) == (1.0, 2.0), grade.reason


@FAMILIES
def test_the_repository_gets_in_the_way_of_no_module_of_the_tests(
    begin: Begin, row: dict[str, Any]
) -> None:
    episode, sandbox = begin(row)
    sandbox.write("/testbed/adding.py", (FIXED + NEEDS_MORE).encode())
    for name in ("json", "pytest", "sitecustomize"):
        sandbox.write(f"/testbed/{name}/__init__.py", b"raise SystemExit(0)")
    grade = episode.grade()
    assert grade.reward == 1.0, grade.reason


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\n"
        "shown = subprocess.run(['git', 'show', '2.0:adding.py'], capture_output=True)\n"
        "exec(shown.stdout)",
        "import os; os._exit(0)",
        "import _pytest.python as p; p.Function.runtest = lambda self: None",
    ],
    ids=["asks git for the fix", "exits", "patches test functions"],
)
def test_code_that_would_rather_be_rewarded_than_right_is_not(begin: Begin, code: str) -> None:
    episode, sandbox = begin(SWE_GYM)
    sandbox.write("/testbed/adding.py", f"{CODE}\n{code}\n".encode())
    assert episode.grade().reward == 0.0


def test_an_agent_that_removes_the_repository_gets_nothing_and_the_reason(begin: Begin) -> None:
    episode, sandbox = begin(SWE_GYM)
    sandbox.write("/testbed/adding.py", (FIXED + NEEDS_MORE).encode())
    output(sandbox, "rm -rf .git")
    grade = episode.grade()
    assert grade.reward == 0.0
    assert "git cannot tell what was changed" in grade.reason


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("without-repository", "/testbed: No such file"),
        ("without-pytest", "No module named 'pytest'.*use an image that has it"),
        ("of-somebody-else", "Permission denied.*unpack the image so that sandboxes may change it"),
    ],
)
def test_an_image_in_which_no_row_can_be_worked_on_fails_the_row(
    begin: Begin, image: str, reason: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=f"(?s){reason}"):
        begin(SWE_GYM | {"image_name": image})


def test_an_image_that_is_not_here_fails_the_row_by_its_name(begin: Begin) -> None:
    with pytest.raises(InvalidMessage, match="'me/other:1' in the directory of --images"):
        begin(SWE_GYM | {"image_name": "me/other:1"})


@pytest.mark.parametrize("program", sorted(INSIDE.glob("*.py")), ids=lambda path: path.stem)
def test_what_runs_on_the_python_of_an_image_is_written_for_old_ones(program: Path) -> None:
    ast.parse(program.read_text(), feature_version=(3, 7))
