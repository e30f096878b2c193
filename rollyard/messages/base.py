"""What all messages share: immutable, strict, and checked where they are made."""

import re

import msgspec

from rollyard.errors import InvalidMessage

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""What may name a run, a prompt, a batch or a server: such names become parts of queue keys."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all messages: immutable, keyword-only, and strict about unknown fields."""


def check(condition: bool, problem: str, fix: str = "") -> None:
    """Raise `InvalidMessage` with `problem` unless `condition` holds."""
    if not condition:
        raise InvalidMessage(problem, fix=fix)


def check_most(value: float, most: float, what: str) -> None:
    check(value <= most, f"{what} must be at most {most:.0f}, got {value}")


def check_name(name: str, what: str) -> None:
    check(
        NAME.fullmatch(name) is not None,
        f"{what} {name!r} is not a valid name",
        fix="use 1-128 letters, digits, '.', '_', ':' or '-', starting with a letter or digit",
    )


class Accepted(Message, frozen=True):
    """The request was taken; there is nothing else to say."""

    accepted: bool = True
