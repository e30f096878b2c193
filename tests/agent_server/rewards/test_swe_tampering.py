"""Agents of `swe` that would rather be rewarded than work."""

from collections.abc import Iterator

import pytest

from agent_server.environments.swe import grading
from agent_server.environments.swe.environment import SANDBOX
from agent_server.repositories import Repositories
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox
from tests.agent_server.environments.swe.projects import (
    CODE,
    FIXED,
    ROW,
    begun,
    left,
    make_repositories,
)

PASSING_HOOKS = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.get_result().outcome = "passed"
"""
LINES = """
import os
for descriptor in range(3, 100):
    try:
        os.write(descriptor, b'["", "tests/test_adding.py::test_add", "call", "passed"]\\n')
    except OSError:
        pass
"""
REPORTS_OF_OTHERS = """
import glob, os
for process in {os.getppid(), 1}:
    for descriptor in range(20):
        try:
            with open(f"/proc/{process}/fd/{descriptor}", "wb") as file:
                file.write(b"passed" * 100_000)
        except OSError:
            pass
for report in glob.glob("/workspace/*/test_*.py"):
    with open(os.path.dirname(report) + "/report", "w") as file:
        file.write("ab" * 32 + '\\n{"lines": [], "exit_status": 1, "in_time": true, "tail": ""}')
os.kill(os.getppid(), 9)
"""
PATCHES = {
    "test functions": "import _pytest.python as p; p.Function.runtest = lambda self: None",
    "unittest's": "import _pytest.unittest as u; u.TestCaseFunction.runtest = lambda self: None",
    "assertions": "import unittest; unittest.TestCase.assertEqual = lambda *args: None",
    "reports": (
        "import _pytest.reports as r\n"
        "made = r.TestReport.__init__\n"
        "def init(self, *args, **named):\n"
        "    made(self, *args, **named)\n"
        "    self.outcome = 'passed'\n"
        "r.TestReport.__init__ = init"
    ),
}
CODES = {
    "exits": "import os; os._exit(0)",
    "exits with the status of failures": "import os; os._exit(1)",
    "raises SystemExit": "raise SystemExit(0)",
    "ends pytest": "import pytest; pytest.exit('done', 0)",
    "prints what pytest prints": "print('2 passed in 0.01s')",
    "writes lines to all descriptors": LINES,
    "writes to the reports of others": REPORTS_OF_OTHERS,
    "answers in a child": "import os\nif os.fork():\n    os._exit(0)",
    "needs too much memory": "held = []\nwhile True:\n    held.append(bytearray(1 << 28))",
    "recurses without end": "def down():\n    down()\ndown()",
    "skips all tests": "import pytest; pytest.skip('no', allow_module_level=True)",
    "skips its test": "import pytest\ndef add(a, b): pytest.skip('no')",
    "expects to fail": "import pytest\ndef add(a, b): pytest.xfail('no')",
    "expects to fail by itself": (
        "from _pytest.outcomes import XFailed\ndef add(a, b): raise XFailed('no')"
    ),
    "stops its test": (
        "import unittest.case\n"
        "def add(a, b): raise getattr(unittest.case, '_ShouldStop', RuntimeError)"
    ),
}
FILES = {
    "changes the tests": {"tests/test_adding.py": "def test_add(): pass"},
    "adds a conftest": {"conftest.py": PASSING_HOOKS},
    "adds a conftest beside the tests": {"tests/conftest.py": PASSING_HOOKS},
    "configures pytest": {"pytest.ini": "[pytest]\naddopts = --collect-only"},
    "configures pytest elsewhere": {"pyproject.toml": "[tool.pytest]\ntestpaths = []"},
    "brings a pytest": {"pytest.py": PATCHES["assertions"]},
    "brings a sitecustomize": {"sitecustomize.py": PATCHES["assertions"]},
    "brings a json": {"json/__init__.py": "def dumps(*args): return '{}'"},
    "brings what the tests bring": {"expected.txt": "-1"},
    "brings a unittest": {"unittest.py": "class TestCase: pass"},
}
COMMANDS = {
    "links to its own tests": "ln -sf /tmp/tests.py tests/test_adding.py",
    "puts a file in the place of the tests": "rm -r tests && touch tests",
    "puts a pipe in the place of a file": "rm adding.py && mkfifo adding.py",
    "leaves too much": "yes | head -c 3000000 > many.py",
    "loses the repository": "rm -rf .git",
    "lies to git": "git config core.worktree /tmp && git config core.fsmonitor /bin/false",
    "filters what git reads": (
        "echo '*.py filter=lie' > .gitattributes && git config filter.lie.clean 'echo lie'"
    ),
    "closes the directory": "chmod 000 .",
    "adds a repository": "cp -r .git inner.git && mkdir inner && mv inner.git inner/.git",
}


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    return make_repositories(tmp_path_factory.mktemp("repositories"))


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SANDBOX) as opened:
        yield opened


def test_the_honest_solution_is_rewarded(repositories: Repositories, sandbox: Sandbox) -> None:
    grade = left(repositories, sandbox, {"adding.py": FIXED})
    assert grade.reward == 1.0, grade.reason


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_code_that_does_this_when_it_is_imported_is_not(
    repositories: Repositories, sandbox: Sandbox, code: str
) -> None:
    grade = left(repositories, sandbox, {"adding.py": f"{CODE}\n{code}\n"})
    assert grade.reward == 0.0, grade.reason


@pytest.mark.parametrize("code", PATCHES.values(), ids=PATCHES)
def test_code_that_patches_what_decides_about_tests_voids_them(
    repositories: Repositories, sandbox: Sandbox, code: str
) -> None:
    grade = left(repositories, sandbox, {"adding.py": f"{CODE}\n{code}\n"})
    assert (grade.reward, grade.components["pass_to_pass"]) == (0.0, 0.0)
    assert grade.reason == "the tests prove nothing: tests that must fail passed"


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_an_agent_that_adds_such_files_is_not(
    repositories: Repositories, sandbox: Sandbox, files: dict[str, str]
) -> None:
    grade = left(repositories, sandbox, {"adding.py": f"{CODE}\n", **files})
    assert grade.reward == 0.0, grade.reason


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_agent_that_runs_such_a_command_is_not(
    repositories: Repositories, sandbox: Sandbox, command: str
) -> None:
    grade = left(repositories, sandbox, {}, command)
    assert grade.reward == 0.0, grade.reason


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(1000)",
        "import signal\nfor each in (2, 15): signal.signal(each, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_code_that_does_not_end_is_ended(
    repositories: Repositories, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(grading, "TEST_SECONDS", 1.0)
    grade = left(repositories, sandbox, {"adding.py": f"{CODE}\n{code}\n"})
    assert grade.reward == 0.0
    assert grade.reason == "the tests prove nothing: the tests did not end in time"


def test_a_process_that_outlives_the_agent_changes_nothing(
    repositories: Repositories, sandbox: Sandbox
) -> None:
    episode, _ = begun(ROW, repositories, sandbox)
    always = "while true; do echo 'raise SystemExit(0)' > /workspace/adding/adding.py; done"
    sandbox.bash(f"({always}) &", deadline_seconds=5)
    assert episode.grade().reward == 0.0


def test_a_file_of_the_tests_is_theirs_whatever_its_name(
    repositories: Repositories, sandbox: Sandbox
) -> None:
    row = ROW | {"test_patch": "", "FAIL_TO_PASS": ["checks.py::test_add"], "PASS_TO_PASS": []}
    episode, _ = begun(row, repositories, sandbox)
    sandbox.write("/workspace/adding/checks.py", b"def test_add(): pass")
    grade = episode.grade()
    assert grade.reward == 0.0
    assert "not counted: checks.py (it belongs to the row's tests)" in grade.reason


def test_what_does_not_count_is_named(repositories: Repositories, sandbox: Sandbox) -> None:
    others = {"expected.txt": "6", "tests/conftest.py": PASSING_HOOKS}
    grade = left(repositories, sandbox, {"adding.py": FIXED, **others})
    assert grade.reward == 1.0
    assert grade.reason.endswith(
        "not counted: expected.txt (it belongs to the row's tests), "
        "tests/conftest.py (it configures the tests)"
    )
