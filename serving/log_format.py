"""Formats of log records. They stand apart from `logs`, so that a launcher need not import it."""

from enum import StrEnum


class LogFormat(StrEnum):
    TEXT = "text"
    """Lines for people."""
    JSON = "json"
    """One JSON object per line."""
