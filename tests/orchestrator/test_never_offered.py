"""A trainer whose rows need what no agent server has ever had, against the real orchestrator."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from orchestrator.queues import Queues
from rollyard import Client
from rollyard.errors import DeadlineExceeded, NeverOffered
from rollyard.messages import RunStatus
from tests.orchestrator.fake_agents import fake_agent


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


def rows(*sources: str) -> Iterator[dict[str, Any]]:
    return ({"data_source": source} for source in itertools.cycle(sources))


def test_a_misspelt_environment_is_an_error_that_names_the_nearest(
    url: str, client: Client
) -> None:
    with fake_agent(url, lambda job: float(job.member), environment="math"):
        run = client.run(rows("maths"), run_id="train", never_offered_seconds=0.0)
        with pytest.raises(
            NeverOffered, match=r"environment 'maths' \(did you mean 'math'\?\); known are math"
        ) as told:
            run.rollout(requested_batch_size=1)
    assert "never_offered_seconds" in told.value.fix


def test_a_tag_that_no_server_ever_had_is_an_error(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member)):
        run = client.run(
            rows("arithmetic"), run_id="train", tags=("gpu",), never_offered_seconds=0.0
        )
        with pytest.raises(NeverOffered, match="the tag 'gpu'; known are none"):
            run.rollout(requested_batch_size=1)


def test_after_the_error_the_run_goes_on_and_has_every_row(url: str, client: Client) -> None:
    wrong = [{"data_source": "chess"}, {"data_source": "chess"}]
    right = itertools.islice(rows("arithmetic"), 2)
    with ExitStack() as servers:
        servers.enter_context(fake_agent(url, lambda job: float(job.member)))
        run = client.run(wrong, run_id="train", group_size=2, never_offered_seconds=0.0)
        with pytest.raises(NeverOffered):
            run.rollout(requested_batch_size=4)
        run.close()
        run = client.run(right, run_id="train", group_size=2, never_offered_seconds=0.0)
        with pytest.raises(NeverOffered):  # the wrong ones wait still
            run.rollout(requested_batch_size=4)
        servers.enter_context(
            fake_agent(url, lambda job: float(job.member), server_id="b", environment="chess")
        )
        batch = run.rollout(requested_batch_size=4)
    sources = sorted(group.prompt.data_source for group in batch.groups)
    assert sources == ["arithmetic", "arithmetic", "chess", "chess"]


def test_an_environment_that_was_there_before_is_waited_for(
    url: str, client: Client, queues: Queues
) -> None:
    with fake_agent(url, lambda job: 0.0, environment="chess"):
        queues.servers.leave("agent-0")
    with ExitStack() as servers:
        servers.enter_context(fake_agent(url, lambda job: float(job.member)))
        run = client.run(rows("chess"), run_id="train", group_size=2, never_offered_seconds=0.0)

        waited_for: list[str] = []

        def come_back(status: RunStatus) -> None:
            if status.unoffered and not waited_for:
                waited_for.append(status.unoffered)
                chess = fake_agent(
                    url, lambda job: float(job.member), server_id="b", environment="chess"
                )
                servers.enter_context(chess)

        assert len(run.rollout(requested_batch_size=1, on_progress=come_back).groups) == 1
    assert waited_for


def test_other_rows_that_go_on_keep_the_error_away(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member)):
        run = client.run(
            rows("chess", "arithmetic"), run_id="train", group_size=2, never_offered_seconds=60.0
        )
        for _ in range(3):
            run.ack(run.rollout(requested_batch_size=2))
    counters = run.status().counters
    assert counters.jobs_unoffered >= 2
    assert counters.jobs_queued >= counters.jobs_unoffered


def test_none_waits_for_ever(url: str, client: Client) -> None:
    with fake_agent(url, lambda job: float(job.member)):
        run = client.run(rows("chess"), run_id="train", never_offered_seconds=None)
        with pytest.raises(DeadlineExceeded, match="no agent server has the environment 'chess'"):
            run.rollout(requested_batch_size=1, timeout_seconds=0.2)
