"""An asynchronous dataloader as an iterator for the threads that draw rows."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from concurrent.futures import wait

from rollyard.rows import Row

LOOK_SECONDS = 1.0
"""Interval between looks whether the event loop still runs: a thread must not wait for ever."""

Item = Row | Iterable[Row]


def rows_of_loop(
    dataloader: AsyncIterable[Item], loop: asyncio.AbstractEventLoop
) -> Iterator[Item]:
    """The items of `dataloader`, each made in `loop` once it is asked for in another thread."""
    items = aiter(dataloader)
    while True:
        item = asyncio.run_coroutine_threadsafe(_next(items), loop)
        while not wait((item,), LOOK_SECONDS).done:
            if loop.is_closed():
                raise RuntimeError("the event loop that makes the rows is closed")
        if (found := item.result()) is None:
            return
        yield found


async def _next(items: AsyncIterator[Item]) -> Item | None:
    return await anext(items, None)
