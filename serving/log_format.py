"""How a record of the log is written; apart from the log, so that a launcher needs no more."""

from enum import StrEnum


class LogFormat(StrEnum):
    TEXT = "text"
    """For people."""
    JSON = "json"
    """One object a line."""
