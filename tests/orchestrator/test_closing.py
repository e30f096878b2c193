"""Closing frees what a client has in this process, and destroys nothing in the orchestrator."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from rollyard import Client
from rollyard.errors import OrchestratorUnavailable
from tests.orchestrator.fake_agents import fake_agent
from tests.waiting import until

RUN_ID = "closing"


def rows() -> Iterator[dict[str, Any]]:
    return ({"data_source": "arithmetic", "number": number} for number in itertools.count())


def threads_of_the_run() -> set[str]:
    names = {thread.name for thread in threading.enumerate()}
    return names & {f"alive-{RUN_ID}", f"feed-{RUN_ID}"}


def sockets_to(url: str) -> list[object]:
    """Those that this process opened, and has not closed."""
    port = urlsplit(url).port
    connections = psutil.Process().net_connections("tcp")
    return [c for c in connections if c.raddr and c.raddr[1] == port and c.status != "TIME_WAIT"]


def test_a_closed_client_has_no_thread_and_no_socket_and_its_run_goes_on(url: str) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        with Client(url) as client:
            run = client.run(rows(), run_id=RUN_ID, group_size=2)
            batch = run.rollout(2)
            ahead = run.request(2)
            assert threads_of_the_run()
        client.close()
        until("no thread is left", lambda: not threads_of_the_run())
        with Client(url) as client, client.run(rows(), run_id=RUN_ID, group_size=2) as run:
            assert run.rollout(2).groups == batch.groups
            assert run.rollout(2).batch_id == ahead
    until("no socket is left", lambda: not sockets_to(url))


def test_closing_a_run_frees_its_threads_and_leaves_it_to_a_trainer_that_starts_again(
    url: str, client: Client
) -> None:
    with fake_agent(url, lambda job: float(job.member % 2)):
        run = client.run(rows(), run_id=RUN_ID, group_size=2)
        batch = run.rollout(2)
        run.close()
        run.close()
        until("no thread is left", lambda: not threads_of_the_run())
        assert run.status().batches == (batch.batch_id,)
        assert client.run(rows(), run_id=RUN_ID, group_size=2).rollout(2).groups == batch.groups


@pytest.mark.timeout(30)
def test_a_call_that_waits_for_the_orchestrator_ends_when_its_client_is_closed() -> None:
    client = Client("http://127.0.0.1:9", patience_seconds=3600)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(client.weight_version)
        client.close()
        with pytest.raises(OrchestratorUnavailable):
            waiting.result()
