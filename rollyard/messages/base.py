"""Base and checks of all messages: immutable, strict, and checked where they are made."""

import re
from typing import Annotated, Any

import msgspec

from rollyard.errors import InvalidMessage

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""Valid names of runs, prompts, batches and servers. They become parts of Redis keys and of
URLs, so that neither '/' nor white space may occur in one."""
URL = re.compile(r"https?://[!-\"$-.0->A-~]+(/[!-\"$->@-~]*)?")
"""URLs of services, without user, query or fragment. Of ASCII alone: what white space is differs
between the languages that read the pattern in `/openapi.json`."""


def described(**schema: Any) -> msgspec.Meta:
    """JSON Schema of a value, for `/openapi.json` alone."""
    # msgspec would check a `Meta(pattern=...)` itself, with an error that has no `fix`.
    return msgspec.Meta(extra_json_schema=schema)


Name = Annotated[str, described(pattern=f"^{NAME.pattern}$")]
JobId = Annotated[str, described(pattern="^[^/]")]
"""`<run>/<group>/<member>`"""
Url = Annotated[str, described(pattern=f"^{URL.pattern}$")]
MOST = 2**53 - 1
"""Redis counts in doubles: up to here it tells any two numbers apart."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
# Lower bounds that users may miss are checked in `__post_init__`, with a sentence and a fix.
Positive = Annotated[int, msgspec.Meta(le=MOST, extra_json_schema={"minimum": 1})]
WaitSeconds = Annotated[float, msgspec.Meta(ge=0.0, le=60.0)]
"""Seconds that a long poll may wait on the server before it answers."""
MostJobs = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""Limit on the number of Jobs in an answer."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all messages: immutable, and strict about unknown fields."""


def check(condition: bool, problem: str, fix: str = "") -> None:
    """Raise `InvalidMessage` with `problem` unless `condition` holds."""
    if not condition:
        raise InvalidMessage(problem, fix=fix)


def check_least(value: float, least: int, what: str, fix: str = "") -> None:
    check(value >= least, f"{what} must be at least {least}, got {value}", fix)


def check_most(value: float, most: float, what: str) -> None:
    check(value <= most, f"{what} must be at most {most:.0f}, got {value}")


def check_name(name: str, what: str) -> None:
    check(
        NAME.fullmatch(name) is not None,
        f"{what} {name!r} is not a valid name",
        fix="use 1-128 letters, digits, '.', '_', ':' or '-', starting with a letter or digit",
    )


def check_url(url: str) -> None:
    check(
        URL.fullmatch(url) is not None,
        f"{url!r} is not the URL of a service",
        fix="give one like http://host:port, without user or password",
    )


class Accepted(Message, frozen=True):
    """The empty answer to a request that was carried out."""

    accepted: bool = True


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a refused request. Unknown fields are ignored: a newer service may add some."""

    code: str
    """The kind of error, as in `rollyard.errors`."""
    message: str
    """One sentence that says what is wrong."""
    fix: str = ""
    """Advice on what to do next; empty where there is none."""
