"""One named check, and how it came out."""

from collections.abc import Callable
from enum import StrEnum

import msgspec


class CheckVerdict(StrEnum):
    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It needs something that another check found missing."""


class Check(msgspec.Struct, frozen=True):
    name: str
    verdict: CheckVerdict
    finding: str
    fix: str = ""
    """What to do about it; empty unless failed."""


def check(name: str, good: bool, finding: str, fix: str) -> Check:
    return (
        Check(name, CheckVerdict.OK, finding)
        if good
        else Check(name, CheckVerdict.FAILED, finding, fix)
    )


def attempted(name: str, work: Callable[[], str], fix: str) -> Check:
    """`work` returns its finding, or raises: then the check has failed with that sentence."""
    try:
        return Check(name, CheckVerdict.OK, work())
    except Exception as error:  # whatever went wrong is the finding
        return Check(name, CheckVerdict.FAILED, str(error) or type(error).__name__, fix)


def skipped(name: str, why: str) -> Check:
    return Check(name, CheckVerdict.SKIPPED, why)
