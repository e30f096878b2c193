"""The asynchronous client against the orchestrator over real HTTP."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rollyard import AsyncClient, AsyncTrainingRun, Batch, Client
from rollyard.errors import Conflict, LLMUnavailable, PromptsExhausted
from rollyard.http import Peer
from rollyard.messages import Job, RunStatus
from tests.orchestrator.fake_agents import fake_agent
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)

RUN_ID = "asynchronous"


def rows() -> Iterator[dict[str, Any]]:
    return ({"data_source": "arithmetic", "number": number} for number in itertools.count())


def differing(job: Job) -> float:
    return float(job.member % 2)


def numbers(batch: Batch) -> list[int]:
    return [group.prompt.instance["number"] for group in batch.groups]


async def run_on(client: AsyncClient, dataloader: Any = None) -> AsyncTrainingRun:
    return await client.run(dataloader or rows(), run_id=RUN_ID, group_size=2)


class Gate:
    """A judge who lets the Jobs of the first rows pass; the others run until it is opened."""

    def __init__(self, passing: int = 0) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self._passing = passing

    def __call__(self, job: Job) -> float:
        if job.prompt.instance["number"] >= self._passing:
            self.reached.set()
            assert self.open.wait(30)
        return differing(job)

    async def wait_until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 30)


def test_an_asyncio_program_trains_on_batches_requested_ahead(url: str) -> None:
    async def train() -> list[int]:
        seen: list[int] = []
        async with AsyncClient(url) as client, await run_on(client) as run:
            await run.request(2)
            async for batch in run.batches(2):
                await run.request(2)
                seen += numbers(batch)
                await run.ack(batch)
                if len(seen) == 6:
                    break
        return seen

    with fake_agent(url, differing):
        seen = asyncio.run(train())
    assert len(set(seen)) == len(seen) == 6  # which Groups are complete first is the agents' affair


def test_the_event_loop_never_does_what_takes_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither calls nor the dataloader; while one call waits, others are answered."""
    callers: set[threading.Thread] = set()
    call = Peer._call

    def seen_call(*arguments: Any) -> Any:
        callers.add(threading.current_thread())
        return call(*arguments)

    def seen_rows() -> Iterator[dict[str, Any]]:
        for row in rows():
            callers.add(threading.current_thread())
            yield row

    async def call_everything() -> None:
        client = AsyncClient(url, patience_seconds=0.1)
        async with client, await run_on(client, seen_rows()) as run:
            waiting = asyncio.create_task(run.rollout(1))
            await gate.wait_until_reached()
            assert (await run.status()).run_id == RUN_ID
            assert [each.run_id for each in (await client.status()).runs] == [RUN_ID]
            assert (await client.occupancy()).slots
            assert not waiting.done()
            gate.open.set()
            batch = await waiting
            await run.request(1)
            state = await run.state_dict()
            with pytest.raises(Conflict, match="rows are drawn already"):
                await run.load_state_dict(state)
            for publish in (client.update_weights, run.update_weights):
                with pytest.raises(LLMUnavailable):
                    await publish(Path("/checkpoint"), version=1)
            for say in (client.weights_updated, run.weights_updated):
                with pytest.raises(LLMUnavailable):
                    await say(version=1)
            for version in (client.weight_version, run.weight_version):
                with pytest.raises(LLMUnavailable):
                    await version()
            await client.announce_llm_servers([])
            await run.ack(batch)
            await run.finish()

    gate = Gate()
    with fake_agent(url, gate):
        monkeypatch.setattr(Peer, "_call", seen_call)
        asyncio.run(call_everything())
        monkeypatch.undo()
    assert callers
    assert threading.main_thread() not in callers


def test_a_rollout_that_is_cancelled_waits_no_more_and_its_batch_comes_with_the_next(
    url: str,
) -> None:
    async def cancel_and_go_on() -> None:
        async with AsyncClient(url) as client:
            run = await run_on(client)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await run.rollout(2)
            waiting = asyncio.create_task(run.rollout(2))
            await gate.wait_until_reached()
            (requested,) = (await run.status()).batches
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            gate.open.set()
            batch = await run.rollout(2)
            assert batch.batch_id == requested
            assert (await run.status()).batches == (requested,)

    gate = Gate()
    with fake_agent(url, gate):
        asyncio.run(cancel_and_go_on())


@pytest.mark.parametrize("ahead", [False, True])
def test_a_batch_that_came_as_its_rollout_was_cancelled_is_the_next_rollouts(
    url: str, ahead: bool
) -> None:
    async def cancel_at_the_end() -> None:
        async with AsyncClient(url) as client:
            run = await run_on(client)
            asked = [await run.request(1)]
            asked += [await run.request(1)] if ahead else []
            loop, cancelled = asyncio.get_running_loop(), threading.Event()

            def cancel_when_ready(status: RunStatus) -> None:
                if status.batches_ready:
                    loop.call_soon_threadsafe(waiting.cancel)
                    assert cancelled.wait(30)

            waiting = asyncio.create_task(run.rollout(1, on_progress=cancel_when_ready))
            with pytest.raises(asyncio.CancelledError):
                await waiting
            cancelled.set()
            got = [(await run.rollout(1)).batch_id for _ in asked]
            assert got == asked

    with fake_agent(url, differing):
        asyncio.run(cancel_at_the_end())


def test_what_a_cancelled_rollout_would_have_raised_the_next_one_raises(url: str) -> None:
    async def cancel_as_the_rows_end() -> None:
        loop, cancelled = asyncio.get_running_loop(), threading.Event()

        def failing() -> Iterator[dict[str, Any]]:
            loop.call_soon_threadsafe(waiting.cancel)
            assert cancelled.wait(30)
            raise OSError("the dataset is gone")
            yield

        async with AsyncClient(url) as client:
            run = await run_on(client, failing())
            waiting = asyncio.create_task(run.rollout(1))
            with pytest.raises(asyncio.CancelledError):
                await waiting
            cancelled.set()
            with pytest.raises(OSError, match="the dataset is gone"):
                await run.rollout(1)

    with fake_agent(url, differing):
        asyncio.run(cancel_as_the_rows_end())


def test_a_batch_is_acknowledged_while_another_task_waits_for_the_next(url: str) -> None:
    async def acknowledge_meanwhile() -> None:
        async with AsyncClient(url) as client:
            run = await run_on(client)
            first = await run.rollout(1)
            ahead = await run.request(1)
            waiting = asyncio.create_task(run.rollout(1))
            await gate.wait_until_reached()
            await run.ack(first)
            assert (await run.status()).batches == (ahead,)
            assert not waiting.done()
            gate.open.set()
            assert (await waiting).batch_id == ahead

    gate = Gate(passing=1)
    with fake_agent(url, gate):
        asyncio.run(acknowledge_meanwhile())


def test_the_rows_of_an_asynchronous_dataloader_are_made_in_its_event_loop(url: str) -> None:
    async def drawn() -> AsyncIterator[dict[str, Any] | list[dict[str, Any]]]:
        assert threading.current_thread() is threading.main_thread()
        first, *others = itertools.islice(rows(), 4)
        yield first
        await asyncio.sleep(0)
        yield others

    async def train() -> None:
        async with AsyncClient(url) as client:
            run = await run_on(client, drawn())
            batch = await run.rollout(3)
            assert len(set(numbers(batch))) == 3
            await run.ack(batch)
            with pytest.raises(PromptsExhausted, match="1 of 2"):
                await run.rollout(2)

    with fake_agent(url, differing):
        asyncio.run(train())


def threads() -> list[str]:
    """Those of the client and its Run."""
    ours = ("rollyard", f"drive-{RUN_ID}", f"alive-{RUN_ID}", f"feed-{RUN_ID}")
    return [each.name for each in threading.enumerate() if each.name.startswith(ours)]


@pytest.mark.parametrize("error", [None, OSError("no disk")], ids=["done", "failed"])
def test_leaving_frees_the_threads_and_leaves_the_batch_to_who_goes_on(
    url: str, error: Exception | None
) -> None:
    async def train() -> None:
        async with AsyncClient(url) as client, await run_on(client) as run:
            await run.request(1)
            seen.append(await run.rollout(1))
            assert threads()
            if error:
                raise error
        await client.close()

    seen: list[Batch] = []
    with fake_agent(url, differing):
        with pytest.raises(OSError, match="no disk") if error else nullcontext():
            asyncio.run(train())
        until("no thread is left", lambda: not threads())
        with Client(url) as client, client.run(rows(), run_id=RUN_ID, group_size=2) as run:
            assert run.rollout(1).groups == seen[0].groups
