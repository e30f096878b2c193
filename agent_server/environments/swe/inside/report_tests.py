"""Runs pytest on a repository, and writes a line about each phase of each test to a descriptor.

Among the tests are some that must fail, in a file of their own: where one does not, something has
been done to pytest, and what the others say means nothing. The last test of all is one of these, so
that a session that was ended early is told from a whole one.

Its text stands behind that of `find_pytest.py`.
"""

import itertools
import json
import os
import random
import site
import sys
import unittest.case

import pytest
from _pytest.reports import TestReport

# The one exception by which a test of unittest ends early and passes; no pytest needs it.
vars(unittest.case)["_ShouldStop"] = ()


class Reporter:
    """A plugin of pytest. All that it needs for a line is bound before the repository's code is
    imported, which may change any module."""

    def __init__(self, descriptor: int, nonce: str, must_fail: str) -> None:
        self._must_fail = must_fail
        self._expected_to_fail: set[str] = set()
        """Node ids. Called by the tested code, `pytest.xfail` would pass for any test."""
        write, encode = os.write, json.JSONEncoder().encode

        def tell(*said: str) -> None:
            write(descriptor, encode([nonce, *said]).encode() + b"\n")

        self._tell = tell

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: "list[pytest.Item]") -> None:
        """Put the tests that must fail between files, never within one: its fixtures would be torn
        down."""
        self._expected_to_fail.update(each.nodeid for each in items if _is_expected_to_fail(each))
        must_fail = [item for item in items if _file(item) == self._must_fail]
        others = (item for item in items if _file(item) != self._must_fail)
        files = [list(group) for _, group in itertools.groupby(others, _file)]
        for item in must_fail[:-1]:
            files.insert(random.randint(0, len(files)), [item])
        items[:] = [*itertools.chain.from_iterable(files), must_fail[-1]]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: TestReport) -> None:
        phase = report.when if type(report) is TestReport else "subtest"
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):  # a skip of these is an expected failure
            outcome = "xpassed" if report.passed else "xfailed"
            if report.nodeid not in self._expected_to_fail:
                outcome = "failed"
        self._tell(report.nodeid, phase, outcome)


def _file(item: pytest.Item) -> str:
    return str(item.path if hasattr(item, "path") else item.fspath)  # before pytest 7


def _is_expected_to_fail(item: pytest.Item) -> bool:
    """Whether a mark of pytest, or a decorator of unittest, says so."""
    if item.get_closest_marker("xfail") is not None:
        return True
    places = (getattr(item, "obj", None), getattr(item, "cls", None))
    return any(getattr(place, "__unittest_expecting_failure__", False) for place in places)


def main() -> None:
    order = json.load(sys.stdin)
    reporter = Reporter(int(sys.argv[1]), order["nonce"], order["must_fail"])
    site.main()  # lets the repository in, where it is installed
    os.chdir(order["directory"])
    # Behind pytest's own modules, which are imported by now: the repository cannot replace them.
    sys.path[:0] = order["import_from"]
    os.environ["PYTHONPATH"] = os.pathsep.join(order["import_from"])
    arguments = ["-p", "no:cacheprovider", "--rootdir", order["directory"], "--maxfail=0"]
    arguments += ["--continue-on-collection-errors", *order["options"], order["must_fail"]]
    sys.exit(pytest.main([*arguments, *order["files"]], plugins=[reporter]))


if __name__ == "__main__":
    main()
