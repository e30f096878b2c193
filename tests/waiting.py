"""How a test waits for what nothing could wake it for."""

import time
from collections.abc import Callable

import pytest

LOOK_SECONDS = 0.02
"""Between two looks."""


def until(what: str, reached: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until `reached`; the test fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)
