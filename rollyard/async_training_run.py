"""`TrainingRun` for asyncio programs."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from rollyard.messages import Batch, LogprobArray, RunStatus, TokenArray, WeightReport
from rollyard.progress import ShowProgress, watched
from rollyard.training_run import TrainingRun

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(
    threads: ThreadPoolExecutor, work: Callable[P, T], *given: P.args, **named: P.kwargs
) -> T:
    """The result of `work`, called in one of `threads`."""
    return await asyncio.wrap_future(threads.submit(work, *given, **named))


class _GivenUp(Exception):
    """The `rollout` was cancelled: nobody awaits it any more."""


class AsyncTrainingRun:
    """`TrainingRun` for asyncio programs: each method does what its namesake there does.

    `request` and `rollout` take turns, in the order of their calls; everything else may be awaited
    meanwhile. A cancelled `rollout` loses nothing: the next one returns the same Batch, or raises
    the error that the cancelled one would have raised.
    """

    def __init__(self, run: TrainingRun, threads: ThreadPoolExecutor) -> None:
        self.run_id, self.settings = run.run_id, run.settings
        self._run = run
        self._threads = threads
        self._turns = ThreadPoolExecutor(1, f"drive-{run.run_id}")
        self._given_up: deque[asyncio.Future[Batch | None]] = deque()
        """Cancelled rollouts, whose outcomes belong to the next ones."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.leave()
        await self.close()

    async def close(self) -> None:
        """Close as `TrainingRun.close` does. A later `request` or `rollout` raises
        `RuntimeError`."""
        self._turns.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._run.close)

    async def request(self, requested_batch_size: int) -> str:
        return await in_thread(self._turns, self._run.request, requested_batch_size)

    async def rollout(
        self,
        requested_batch_size: int,
        *,
        on_progress: ShowProgress | None = None,
        timeout_seconds: float = 86400.0,
    ) -> Batch:
        """Wait for a Batch as `TrainingRun.rollout` does. `on_progress` is called in the thread
        that waits."""
        while self._given_up:
            if batch := await self._outcome(self._given_up.popleft()):
                return batch
        given_up = threading.Event()
        wait = partial(self._wait, given_up, requested_batch_size, on_progress, timeout_seconds)
        try:
            batch = await self._outcome(asyncio.wrap_future(self._turns.submit(wait)))
        except asyncio.CancelledError:
            given_up.set()
            raise
        assert batch is not None  # it was not given up
        return batch

    async def batches(self, requested_batch_size: int) -> AsyncIterator[Batch]:
        while True:
            yield await self.rollout(requested_batch_size)

    async def ack(self, batch: Batch) -> None:
        await in_thread(self._threads, self._run.ack, batch)

    async def state_dict(self, trained: Sequence[Batch] = ()) -> dict[str, Any]:
        return await in_thread(self._threads, self._run.state_dict, trained)

    async def load_state_dict(self, state: dict[str, Any]) -> None:
        await in_thread(self._turns, self._run.load_state_dict, state)

    async def update_weights(self, path: Path | str, version: int) -> WeightReport:
        return await in_thread(self._threads, self._run.update_weights, path, version)

    async def weights_updated(self, version: int) -> WeightReport:
        return await in_thread(self._threads, self._run.weights_updated, version)

    async def weight_version(self) -> int:
        return await in_thread(self._threads, self._run.weight_version)

    async def score(self, token_ids: TokenArray) -> dict[str, LogprobArray]:
        return await in_thread(self._threads, self._run.score, token_ids)

    async def status(self) -> RunStatus:
        return await in_thread(self._threads, self._run.status)

    async def finish(self) -> RunStatus:
        return await in_thread(self._threads, self._run.finish)

    async def leave(self) -> None:
        await in_thread(self._threads, self._run.leave)

    async def _outcome(self, rollout: "asyncio.Future[Batch | None]") -> Batch | None:
        """The result of a `_wait`, which is kept for the next `rollout` if this is cancelled."""
        try:
            await asyncio.wait((rollout,))  # unlike `await rollout`, this does not cancel it
        except asyncio.CancelledError:
            self._given_up.append(rollout)
            raise
        return rollout.result()

    def _wait(
        self,
        given_up: threading.Event,
        requested_batch_size: int,
        on_progress: ShowProgress | None,
        timeout_seconds: float,
    ) -> Batch | None:
        """Wait for a Batch in this thread; None if nobody awaits it any more."""

        def heard(status: RunStatus) -> None:
            if given_up.is_set():
                raise _GivenUp
            show(status)

        watching = watched(on_progress, show_progress=self._run.show_progress)
        with suppress(_GivenUp), watching as show:
            if not given_up.is_set():
                return self._run.rollout(
                    requested_batch_size, on_progress=heard, timeout_seconds=timeout_seconds
                )
        return None
