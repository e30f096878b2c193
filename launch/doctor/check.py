"""A named check and its verdict."""

from collections.abc import Callable
from enum import StrEnum

import msgspec


class CheckVerdict(StrEnum):
    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The check needs something that another check found missing, or may not be seen."""


class Check(msgspec.Struct, frozen=True):
    name: str
    verdict: CheckVerdict
    finding: str
    fix: str = ""
    """Advice on what to do; empty unless the check failed."""


def check(name: str, good: bool, finding: str, fix: str) -> Check:
    if good:
        return Check(name, CheckVerdict.OK, finding)
    return Check(name, CheckVerdict.FAILED, finding, fix)


def attempted(name: str, work: Callable[[], str], fix: str) -> Check:
    """The check that `work` succeeds. Its finding is the returned text, or the error raised."""
    try:
        return Check(name, CheckVerdict.OK, work())
    except Exception as error:  # whatever went wrong is the finding
        return Check(name, CheckVerdict.FAILED, str(error) or type(error).__name__, fix)


def skipped(name: str, why: str) -> Check:
    return Check(name, CheckVerdict.SKIPPED, why)
