"""The outcome of each test of a session, from the lines that were written about it.

Whether they can be believed is decided here, outside the sandbox, by what the code under test would
have to get right to forge them: the signature, the nonce of every line, one line a phase, and the
tests that must fail.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rollyard.codec import decode_json
from rollyard.errors import InvalidMessage

_EXIT_WITH_FAILURES = 1
"""pytest's exit status where tests failed, as some always must."""
_GOOD = ("passed", "xfailed")


class Forged(Exception):
    """Lines that mean nothing; the message says what gave them away, or what is missing."""


class Secrets(msgspec.Struct, frozen=True):
    """What only those who may report know."""

    key: str
    """Key of the report's signature in hexadecimal digits, which no tested code can see."""
    nonce: str
    """Mark on each line, which tested code can only find by looking for it."""


class _Report(msgspec.Struct):
    """What `inside/run_tests.py` writes."""

    lines: list[str]
    exit_status: int
    in_time: bool
    tail: str


class Session(msgspec.Struct, frozen=True):
    """One session of tests."""

    outcomes: Mapping[str, str]
    """`passed`, `failed`, `skipped`, `xfailed` or `xpassed`, by node id."""

    def passed(self, test: str) -> bool:
        return self.outcome(test) in _GOOD

    def outcome(self, test: str) -> str:
        """The outcome of a test by its node id, or by the part behind the file with dots."""
        if test in self.outcomes:
            return self.outcomes[test]
        found = [said for name, said in self.outcomes.items() if _dotted(name) == test]
        return _worst(found) if found else "not run"


def read_session(written: bytes, secrets: Secrets, must_fail: str, count: int) -> Session:
    """The session from its signed report. `count` tests must have failed in the file `must_fail`.
    Raises `Forged`."""
    report = _signed(written, secrets.key)
    if not report.in_time:
        raise Forged("the tests did not end in time")
    phases = _phases(report.lines, secrets.nonce)
    outcomes = {test: _outcome(said) for test, said in phases.items()}
    # pytest names no file that is outside of the repository.
    controls = [test for test in outcomes if test.startswith("::") or must_fail in test]
    if any(outcomes[test] != "failed" for test in controls):
        raise Forged("tests that must fail passed")
    if len(controls) != count or report.exit_status != _EXIT_WITH_FAILURES:
        raise Forged(f"pytest was ended early: {_last_line(report.tail)}")
    return Session({test: said for test, said in outcomes.items() if test not in controls})


def _signed(written: bytes, key: str) -> _Report:
    signature, _, body = written.partition(b"\n")
    expected = hmac.new(bytes.fromhex(key), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, expected.encode()):
        raise Forged("the report of the tests has a wrong signature")
    return decode_json(body, _Report)


def _phases(lines: Iterable[str], nonce: str) -> dict[str, dict[str, str]]:
    phases: dict[str, dict[str, str]] = {}
    for line in lines:
        try:
            mark, test, phase, outcome = decode_json(line.encode(), tuple[str, str, str, str])
        except InvalidMessage as error:
            raise Forged("there is a line about the tests that pytest did not write") from error
        if mark != nonce:
            raise Forged("there is a line about the tests that pytest did not write")
        said = phases.setdefault(test, {})
        if phase == "subtest":
            said[phase] = _worst([outcome, said.get(phase, outcome)])
        elif phase in said:
            raise Forged(f"{test} was reported twice")
        else:
            said[phase] = outcome
    return phases


def _outcome(phases: Mapping[str, str]) -> str:
    if "failed" in phases.values():
        return "failed"
    skipped = phases.get("setup") == "skipped"
    return phases.get("call", "skipped" if skipped else "not run")


def _worst(outcomes: Sequence[str]) -> str:
    bad = [outcome for outcome in outcomes if outcome not in _GOOD]
    return (bad or [*outcomes])[0]


def _dotted(node_id: str) -> str:
    return ".".join(node_id.split("::")[1:])


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:200]
