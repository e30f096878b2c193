"""The grade of a patch, by the row's tests, in a sandbox that the agent never touched.

- Of what the agent did, the patch alone crosses over, without the files that decide about tests:
  these are the row's own.
- Whatever the patch makes of the tests is a grade. An exception means that the row, the sandbox or
  the operator's repositories failed.
"""

import re
from collections.abc import Container, Sequence
from pathlib import PurePosixPath

from agent_server.environments.protocol import EnvironmentFailed
from agent_server.environments.swe.checkout import CheckOut, Checkout
from agent_server.environments.swe.patch import FileChange, MalformedPatch, joined, read_patch
from agent_server.environments.swe.pytest_run import run_tests
from agent_server.environments.swe.row import SweRow
from agent_server.environments.swe.session import Forged, Session
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import Grade

TEST_SECONDS = 600.0
_SHOWN = 3
"""Number of names that a reason shows before it counts the rest."""

_CONFIGURATION = frozenset(
    {
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
        *("tox.ini", "setup.cfg", "pyproject.toml"),
    }
)
_IMPORTED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_INTERPRETER = ".venv"
_PATHS = re.compile(r"^diff --git a/.+ b/(.+)$", re.MULTILINE)
_TEST_DIRECTORIES = frozenset({"test", "tests", "r2e_tests"})


def grade(row: SweRow, check_out: CheckOut, patch: bytes, sandbox: Sandbox) -> Grade:
    """Grade the patch to the repository that `check_out` puts at its base commit into a fresh
    sandbox beside `sandbox`."""
    try:
        changes = read_patch(patch)
    except MalformedPatch as error:
        return nothing(f"the patch is refused: {error}")
    own = {*_PATHS.findall(row.test_patch), *_files(row)}
    reasons = [(each, why_left_out(each, own)) for each in changes]
    counted = [change for change, reason in reasons if not reason]
    left_out = [f"{change.path} ({reason})" for change, reason in reasons if reason]
    beside = f"; not counted: {_few(left_out)}" if left_out else ""
    if not counted:
        return nothing(f"the agent changed nothing{beside}")
    with sandbox.fresh() as fresh:
        checkout = check_out(fresh)
        _put_tests(checkout, row)  # first: if they do not fit, the row is to blame
        if reason := checkout.apply(joined(counted)):
            return nothing(f"the patch does not apply: {reason}{beside}")
        try:
            session = run_tests(fresh, checkout, _files(row), TEST_SECONDS)
        except Forged as error:
            return nothing(f"the tests prove nothing: {error}{beside}")
    return _judge(row, session, len(counted), beside)


def nothing(reason: str) -> Grade:
    """The grade of a patch that no test speaks for."""
    return Grade(reward=0.0, components={"fail_to_pass": 0.0, "pass_to_pass": 0.0}, reason=reason)


def why_left_out(change: FileChange, own: Container[str] = ()) -> str:
    """The reason why a change of the agent does not count; empty if it does. `own` has the paths of
    the row's tests and of what they bring."""
    if change.refused:
        return change.refused
    if change.path in own:
        return "it belongs to the row's tests"
    path = PurePosixPath(change.path)
    if path.parts[0] == _INTERPRETER:
        return "it is a part of the interpreter"
    named = {PurePosixPath(part).stem for part in path.parts}
    if path.name in _CONFIGURATION or named & _IMPORTED_BY_PYTHON:
        return "it configures the tests"
    named_as_test = path.name.startswith("test_") or path.stem.endswith("_test")
    if named_as_test or _TEST_DIRECTORIES.intersection(path.parts[:-1]):
        return "it is a test"
    return ""


def _put_tests(checkout: Checkout, row: SweRow) -> None:
    """Give the repository the row's tests."""
    if row.test_patch and (reason := checkout.apply(row.test_patch.encode())):
        raise EnvironmentFailed(f"the row's test_patch does not apply: {reason}")
    for path, text in row.test_files.items():
        checkout.write(path, text)


def _files(row: SweRow) -> list[str]:
    """The files of the row's tests. A test of R2E-Gym names none: the row brings them."""
    named = {test.partition("::")[0] for test in row.tests if "::" in test}
    return sorted(named | row.test_files.keys())


def _judge(row: SweRow, session: Session, files: int, beside: str) -> Grade:
    failed = [test for test in row.tests if not session.passed(test)]
    shown = [f"{test} ({session.outcome(test)})" for test in failed]
    verdict = f"not passed: {_few(shown)}" if failed else "all tests passed"
    return Grade(
        reward=0.0 if failed else 1.0,
        components={
            "fail_to_pass": _fraction(row.fail_to_pass, session),
            "pass_to_pass": _fraction(row.pass_to_pass, session),
        },
        metrics={"files_changed": files, "tests_run": len(session.outcomes)},
        reason=f"{len(row.tests) - len(failed)} of {len(row.tests)}: {verdict}{beside}",
    )


def _fraction(tests: Sequence[str], session: Session) -> float:
    return sum(map(session.passed, tests)) / len(tests) if tests else 1.0


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:300] for name in names[:_SHOWN]) + more
