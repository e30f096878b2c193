"""How much of each fault a test run has: what CI can afford, or all of `make faults`."""

import os

FULL = os.environ.get("ROLLYARD_FAULTS") == "full"


def scaled(quick: int, full: int) -> int:
    return full if FULL else quick


def timeout_seconds(full: int) -> int:
    """Of a test whose full numbers take longer than the tests' usual limit."""
    return scaled(300, full)
