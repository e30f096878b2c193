"""What a session of tests says, and when it says nothing."""

import hashlib
import hmac
import json
from typing import Any

import pytest

from agent_server.environments.swe.session import Forged, Secrets, Session, read_session

SECRETS = Secrets(key="ab" * 32, nonce="nonce")
CONTROL = "::test_that_must_fail"


def phases(test: str, call: str = "passed", nonce: str = "nonce") -> list[list[str]]:
    said = {"setup": "passed", "call": call, "teardown": "passed"}
    return [[nonce, test, phase, outcome] for phase, outcome in said.items()]


def written(lines: list[list[str]], *, key: str = SECRETS.key, **more: Any) -> bytes:
    report = {"exit_status": 1, "in_time": True, "tail": "the end", **more}
    body = json.dumps({"lines": [json.dumps(line) for line in lines], **report}).encode()
    return hmac.new(bytes.fromhex(key), body, hashlib.sha256).hexdigest().encode() + b"\n" + body


def read(report: bytes) -> Session:
    return read_session(report, SECRETS, "test_random", 1)


HONEST = phases("a.py::test_a") + phases(CONTROL, "failed")


def test_the_tests_that_must_fail_are_none_of_the_outcomes() -> None:
    assert read(written(HONEST)).outcomes == {"a.py::test_a": "passed"}


@pytest.mark.parametrize(
    ("call", "passed"),
    [
        ("passed", True),
        ("xfailed", True),
        ("failed", False),
        ("skipped", False),
        ("xpassed", False),
    ],
)
def test_an_expected_failure_counts_as_passed(call: str, passed: bool) -> None:
    session = read(written(phases("a.py::test_a", call) + phases(CONTROL, "failed")))
    assert session.outcome("a.py::test_a") == call
    assert session.passed("a.py::test_a") == passed


def test_a_test_without_an_end_has_not_passed() -> None:
    session = read(written(phases("a.py::test_a")[:1] + phases(CONTROL, "failed")))
    assert session.outcome("a.py::test_a") == "not run"
    assert not session.passed("a.py::test_b")


def test_a_test_whose_teardown_or_subtest_fails_has_failed() -> None:
    lines = [*phases("a.py::test_a")[:2], ["nonce", "a.py::test_a", "teardown", "failed"]]
    assert not read(written(lines + phases(CONTROL, "failed"))).passed("a.py::test_a")
    subtests = [["nonce", "a.py::test_a", "subtest", each] for each in ("failed", "passed")]
    assert not read(written(HONEST + subtests)).passed("a.py::test_a")


def test_a_name_with_dots_stands_for_all_tests_of_that_name() -> None:
    lines = phases("a.py::TestA::test_a") + phases("b.py::TestA::test_a", "failed")
    session = read(written(lines + phases(CONTROL, "failed")))
    assert session.outcome("TestA.test_a") == "failed"


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (written(HONEST, key="cd" * 32), "signature"),
        (b"", "signature"),
        (written(HONEST).replace(b'"exit_status": 1', b'"exit_status": 0'), "signature"),
        (written(HONEST, in_time=False), "in time"),
        (written(HONEST, exit_status=0), "ended early: the end"),
        (written(phases("a.py::test_a")), "ended early"),
        (written(phases("a.py::test_a") + phases(CONTROL)), "must fail passed"),
        (written(HONEST + phases("a.py::test_b", nonce="guessed")), "did not write"),
        (written([*HONEST, ["nonce"]]), "did not write"),
        (written(HONEST + phases("a.py::test_a")), "reported twice"),
    ],
)
def test_a_session_that_somebody_tampered_with_says_nothing(report: bytes, reason: str) -> None:
    with pytest.raises(Forged, match=reason):
        read(report)
