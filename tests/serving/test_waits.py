"""Calls that wait are counted, and readers leave room for others."""

from contextlib import ExitStack

import pytest

from rollyard.errors import Unavailable
from serving.waits import MAX_READERS_WAITS, MAX_WAITS, Waits


def fill(waits: Waits, number: int, *, reader: bool) -> ExitStack:
    """So many calls that wait until the stack is closed."""
    waiting = ExitStack()
    for _ in range(number):
        waiting.enter_context(waits.one(reader))
    return waiting


def test_one_more_may_wait_when_one_has_its_news() -> None:
    waits = Waits()
    waiting = fill(waits, MAX_WAITS, reader=False)
    with pytest.raises(Unavailable, match="128 calls wait"), waits.one(reader=False):
        pass
    waiting.close()
    with waits.one(reader=False):
        pass


def test_readers_leave_room_for_others() -> None:
    waits = Waits()
    with fill(waits, MAX_READERS_WAITS, reader=True):
        with pytest.raises(Unavailable), waits.one(reader=True):
            pass
        with waits.one(reader=False):
            pass
