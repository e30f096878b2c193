"""Batches requested ahead and checkpoints of the feed, against the orchestrator over real HTTP."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.queues import Queues
from rollyard import Batch, Client, Recycling, TrainingRun, Unit
from rollyard.errors import Conflict, PromptsExhausted
from rollyard.messages import Criterion, Job, RunStatus
from tests.orchestrator.fake_agents import fake_agent
from tests.queue_fixtures import publish

SECONDS = 20.0


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


def rows(most: int | None = None) -> Iterator[dict[str, Any]]:
    return (
        {"data_source": "arithmetic", "number": number}
        for number in itertools.islice(itertools.count(), most)
    )


def differing(job: Job) -> float:
    return float(job.member % 2)


def every_third_is_hopeless(job: Job) -> float:
    return 0.0 if job.prompt.instance["number"] % 3 == 0 else differing(job)


def numbers(batch: Batch) -> list[int]:
    return [group.prompt.instance["number"] for group in batch.groups]


def until_ready(run: TrainingRun, batch_id: str) -> None:
    """Wait, without feeding, until the Batch is complete."""
    status = run._news(batch_id)
    while batch_id not in status.batches_ready:
        assert batch_id in status.batches
        status = run._news(batch_id)


@pytest.mark.timeout(60)
def test_a_trainer_that_requests_ahead_finds_its_batch_ready(url: str, client: Client) -> None:
    with fake_agent(url, every_third_is_hopeless):
        run = client.run(rows(), run_id="train", group_size=2)
        run.request(3)
        seen: list[int] = []
        for _ in range(6):
            batch = run.rollout(3, timeout_seconds=SECONDS)
            until_ready(run, run.request(3))
            seen += numbers(batch)
            run.ack(batch)
        run.finish()
    assert len(seen) == len(set(seen)) == 18
    assert all(number % 3 for number in seen)


def test_only_so_many_batches_may_be_outstanding_as_staleness_allows(
    url: str, client: Client
) -> None:
    with fake_agent(url, differing):
        run = client.run(rows(), run_id="train", group_size=2, max_staleness=2)
        for _ in range(3):
            run.request(1)
        with pytest.raises(Conflict, match="at most 3 may be outstanding"):
            run.request(1)
        run.finish()


def test_batches_are_acknowledged_in_any_order(url: str, client: Client) -> None:
    with fake_agent(url, differing):
        run = client.run(rows(), run_id="train", group_size=2)
        asked = [run.request(2), run.request(2)]
        batches = [run.rollout(2), run.rollout(2)]
        assert [batch.batch_id for batch in batches] == asked
        for batch in reversed(batches):
            run.ack(batch)
        assert run.status().batches == ()
        third = run.rollout(2)
    assert not set(numbers(third)) & {*numbers(batches[0]), *numbers(batches[1])}


def test_every_trajectory_trained_ahead_is_as_young_as_asked(url: str, client: Client) -> None:
    with fake_agent(url, differing):
        run = client.run(rows(), run_id="train", group_size=2)
        run.request(2)
        run.request(2)
        ages = [set(run.rollout(2).report.bias.ages) for _ in range(2)]
        run.finish()
    assert ages == [{0}, {1}]


class _Enough(Exception):
    pass


def test_a_run_whose_llm_servers_fell_back_says_why_it_gets_nowhere(
    url: str, client: Client, queues: Queues
) -> None:
    """Its agents' tokens are of version 0, whatever is served."""

    def until_it_says_so(status: RunStatus) -> None:
        if "begun again for it because their tokens were older" in status.waiting_for:
            raise _Enough

    publish(queues, 5)
    with fake_agent(url, differing):
        run = client.run(rows(), run_id="train", group_size=2)
        with pytest.raises(_Enough):
            run.rollout(1, on_progress=until_it_says_so, timeout_seconds=SECONDS)
        counters = run.finish().counters
    assert counters.members_restarted > 0
    assert counters.groups_kept == 0


def test_a_dataloader_that_ends_ahead_is_an_error_once_nothing_runs_any_more(
    url: str, client: Client
) -> None:
    with fake_agent(url, differing):
        run = client.run(rows(3), run_id="train", group_size=2)
        run.request(2)
        run.request(2)
        assert len(run.rollout(2).groups) == 2
        with pytest.raises(PromptsExhausted, match="1 of 2 effective groups"):
            run.rollout(2, timeout_seconds=SECONDS)


def test_a_trainer_put_back_in_its_run_trains_on_every_row_once(url: str, client: Client) -> None:
    with fake_agent(url, every_third_is_hopeless):
        run = client.run(rows(), run_id="train", group_size=2)
        run.ack(first := run.rollout(2))
        state = run.state_dict()
        run.ack(second := run.rollout(2))
        again = client.run(rows(), run_id="train", group_size=2)
        again.load_state_dict(state)
        seen = [*numbers(first), *numbers(second)]
        for _ in range(4):
            batch = again.rollout(2, timeout_seconds=SECONDS)
            seen += numbers(batch)
            again.ack(batch)
        fed = again.status().counters.groups_fed
    assert len(seen) == len(set(seen)) == 12
    assert set(seen) <= {number for number in range(fed) if number % 3}


def test_a_trainer_put_back_in_a_new_run_gets_what_was_not_trained_on(
    url: str, client: Client
) -> None:
    with fake_agent(url, every_third_is_hopeless):
        run = client.run(rows(30), run_id="old", group_size=2)
        run.ack(first := run.rollout(4))
        state = run.state_dict()
        run.finish()
        new = client.run(rows(30), run_id="new", group_size=2)
        new.load_state_dict(state)
        seen = [*numbers(first), *numbers(new.rollout(16, timeout_seconds=SECONDS))]
    assert sorted(seen) == [number for number in range(30) if number % 3]


def test_what_waits_unfinished_comes_again_in_a_new_run(url: str, client: Client) -> None:
    release = threading.Event()

    def first_is_slow(job: Job) -> float | None:
        if job.prompt.instance["number"] == 0 and not release.is_set():
            return None
        return differing(job)

    with fake_agent(url, first_is_slow):
        run = client.run(rows(8), run_id="old", group_size=2)
        run.ack(first := run.rollout(2))
        state = run.state_dict()
        assert [prompt["instance"]["number"] for prompt in state["prompts"]][:1] == [0]
        release.set()
        run.finish()
    with fake_agent(url, first_is_slow, server_id="agent-1"):
        new = client.run(rows(8), run_id="new", group_size=2)
        new.load_state_dict(state)
        seen = [*numbers(first), *numbers(new.rollout(6, timeout_seconds=SECONDS))]
    assert sorted(seen) == list(range(8))


@pytest.mark.parametrize("recycling", list(Recycling))
def test_every_batch_ahead_is_exact_whatever_becomes_of_the_unfinished(
    url: str, client: Client, recycling: Recycling
) -> None:
    with fake_agent(url, every_third_is_hopeless):
        run = client.run(rows(), run_id="train", group_size=2, recycling=recycling)
        run.request(2)
        for _ in range(4):
            batch = run.rollout(2, timeout_seconds=SECONDS)
            run.request(2)
            assert len(batch.groups) == 2
            run.ack(batch)
        run.finish()


def test_a_batch_may_count_trajectories(url: str, client: Client) -> None:
    with fake_agent(url, differing):
        run = client.run(
            rows(),
            run_id="train",
            group_size=4,
            unit=Unit.TRAJECTORIES,
            criterion=Criterion.ANY_SOLVED,
        )
        for _ in range(3):
            batch = run.rollout(3, timeout_seconds=SECONDS)
            results = [result for group in batch.groups for result in group.results]
            assert [result.reward for result in results] == [1.0] * 3
            run.ack(batch)
