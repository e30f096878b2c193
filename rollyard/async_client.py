"""`Client` for asyncio programs, with the same names.

async with AsyncClient("http://127.0.0.1:8005") as client:
    async with await client.run(dataloader, run_id="my-run", group_size=8) as run:
        batch = await run.rollout(requested_batch_size=16)
        ...                                # train on it, in a thread or a process
        await run.update_weights("/path/to/checkpoint", version=1)
        await run.ack(batch)

Every call runs in a thread, so that the event loop never blocks. Cancelling a call ends the wait at
once, though the call may still be carried out; repeating it is safe.
"""

import asyncio
from collections.abc import AsyncIterable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, Unpack
from weakref import WeakSet

from rollyard.api import DEFAULT_URL
from rollyard.async_rows import rows_of_loop
from rollyard.async_training_run import AsyncTrainingRun, in_thread
from rollyard.client import Client, Settings
from rollyard.messages import FleetStatus, Occupancy, WeightReport
from rollyard.never_offered import NEVER_OFFERED_SECONDS
from rollyard.rows import Row

CALLS_AT_ONCE = 16
"""Calls that have a thread at the same time; one more waits. Each Run has another thread, which
waits for its Batches."""


class AsyncClient:
    """`Client` for asyncio programs: each method does what its namesake there does."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        patience_seconds: float = 60.0,
        show_progress: bool | None = None,
    ) -> None:
        self._client = Client(
            url,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            patience_seconds=patience_seconds,
            show_progress=show_progress,
        )
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, "rollyard")
        self._runs: WeakSet[AsyncTrainingRun] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close as `Client.close` does. Later calls raise `RuntimeError`."""
        for run in tuple(self._runs):
            await run.close()
        await asyncio.to_thread(self._client.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        dataloader: Iterable[Row | Iterable[Row]] | AsyncIterable[Row | Iterable[Row]],
        *,
        never_offered_seconds: float | None = NEVER_OFFERED_SECONDS,
        **settings: Unpack[Settings],
    ) -> AsyncTrainingRun:
        """Create a Run, or take it over, as `Client.run` does. Rows are drawn in a thread, or in
        this event loop if the dataloader is asynchronous; the `state_dict` of an asynchronous
        dataloader is not used."""
        rows = dataloader
        if isinstance(rows, AsyncIterable):
            rows = rows_of_loop(rows, asyncio.get_running_loop())
        driven = await in_thread(
            self._threads,
            self._client.run,
            rows,
            never_offered_seconds=never_offered_seconds,
            **settings,
        )
        run = AsyncTrainingRun(driven, self._threads)
        self._runs.add(run)
        return run

    async def status(self) -> FleetStatus:
        return await in_thread(self._threads, self._client.status)

    async def occupancy(self) -> Occupancy:
        return await in_thread(self._threads, self._client.occupancy)

    async def update_weights(self, path: Path | str, version: int) -> WeightReport:
        return await in_thread(self._threads, self._client.update_weights, path, version)

    async def weights_updated(self, version: int) -> WeightReport:
        return await in_thread(self._threads, self._client.weights_updated, version)

    async def announce_llm_servers(self, urls: Iterable[str], *, name: str = "trainer") -> None:
        announce = self._client.announce_llm_servers
        await in_thread(self._threads, announce, tuple(urls), name=name)

    async def weight_version(self) -> int:
        return await in_thread(self._threads, self._client.weight_version)
