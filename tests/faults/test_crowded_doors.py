"""Fault 27 of the fault catalogue in docs/reliability.md: callers that take all the room there is.

Whatever they hold open, wait for or have unpacked: others are answered, no attempt is charged, no
server is lost, and the service stays small. How quickly others are answered is printed.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import psutil
import pytest
import requests

from rollyard import codec
from rollyard.messages import Batch
from tests.faults.conftest import MakeDeployment
from tests.faults.crowds import (
    HALF_A_BODY,
    HALF_A_HEAD,
    connections,
    large_results,
    posted,
    rows_of_empty_lists,
    rows_of_empty_maps,
)
from tests.faults.fault_deployment import FaultDeployment, assert_once_each

JOBS = 8
RUN = "crowded"
LEASE_SECONDS = 6.0
HELD_SECONDS = 2.5 * LEASE_SECONDS
ANSWER_SECONDS = 20.0
"""Generous: the machine of a test is busy. A service that is stopped does not answer at all."""
LOOK_SECONDS = 0.1
MAX_BYTES = 512 * 2**20
MIB = 2**20


class Seen:
    """What another caller saw meanwhile."""

    slowest_seconds = 0.0
    max_bytes = 0


@contextmanager
def watched(deployment: FaultDeployment, url: str, process: str) -> Iterator[Seen]:
    """Calls /livez on connections of its own, one after the other, and looks at the memory."""
    seen, over = Seen(), threading.Event()
    root = psutil.Process(deployment.cluster.pids()[process])
    errors: list[Exception] = []

    def watch() -> None:
        while True:
            began = time.monotonic()
            try:
                requests.get(f"{url}/livez", timeout=ANSWER_SECONDS).raise_for_status()
            except requests.RequestException as error:
                errors.append(error)
            seen.slowest_seconds = max(seen.slowest_seconds, time.monotonic() - began)
            sizes = [each.memory_info().rss for each in (root, *root.children())]
            seen.max_bytes = max(seen.max_bytes, *sizes)
            if over.wait(LOOK_SECONDS):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
        print(f"\n/livez {seen.slowest_seconds:.2f} s, {seen.max_bytes // MIB} MiB resident")
    assert not errors
    assert seen.max_bytes < MAX_BYTES


@pytest.fixture
def deployment(make_deployment: MakeDeployment) -> FaultDeployment:
    deployment = make_deployment(agent_servers=3, slots=4, lease_seconds=LEASE_SECONDS)
    deployment.start()
    return deployment


@pytest.fixture
def working(deployment: FaultDeployment) -> "Future[Batch]":
    """A Batch whose Jobs all run until the gate is opened."""
    rows = [{"number": number, "gate": str(deployment.gate)} for number in range(JOBS)]
    batch = deployment.rollout(rows, RUN)
    deployment.wait_for_running(JOBS)
    return batch


def assert_unharmed(deployment: FaultDeployment, working: "Future[Batch]") -> None:
    assert len(deployment.servers()) == deployment.settings.agent_servers
    deployment.gate.touch()
    batch = working.result(60)
    assert_once_each(batch, range(JOBS), deployment.counters(RUN))
    attempts = [result.lease.attempt for group in batch.groups for result in group.results]
    assert attempts == [1] * JOBS, "an attempt was charged"


CROWDS = {
    "half a head": (256, HALF_A_HEAD),
    "half a body": (256, HALF_A_BODY),
    "readers that wait": (
        290,
        f"GET /runs/{RUN}?wait_seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    ),
    "nothing": (5000, b""),
}


@pytest.mark.parametrize("kind", CROWDS)
def test_a_crowd_at_the_orchestrator_keeps_nobody_out(
    deployment: FaultDeployment, working: "Future[Batch]", kind: str
) -> None:
    url = deployment.cluster.door_url
    with connections(url, *CROWDS[kind]), watched(deployment, url, "orchestrator-0"):
        time.sleep(HELD_SECONDS)
    assert_unharmed(deployment, working)


@pytest.mark.parametrize("kind", ["half a head", "nothing"])
def test_a_crowd_at_an_agent_server_keeps_nobody_out(
    deployment: FaultDeployment, working: "Future[Batch]", kind: str
) -> None:
    url = deployment.servers()["agent-0"]
    with connections(url, *CROWDS[kind]), watched(deployment, url, "agent-0"):
        time.sleep(HELD_SECONDS)
    assert_unharmed(deployment, working)


BOMBS = {
    "empty maps": (rows_of_empty_maps(24 * MIB), codec.MSGPACK, 1),
    "empty lists": (rows_of_empty_lists(8 * MIB), codec.JSON, 1),
    "many that are just taken": (rows_of_empty_maps(MIB // 5), codec.MSGPACK, 32),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_prompts_that_unpack_to_much_more_keep_nobody_out(
    deployment: FaultDeployment, working: "Future[Batch]", bomb: str
) -> None:
    body, mimetype, number = BOMBS[bomb]
    url = deployment.cluster.door_url
    with (
        watched(deployment, url, "orchestrator-0"),
        posted(f"{url}/runs/{RUN}/prompts", body, mimetype, number) as answers,
    ):
        pass
    assert len(answers) == number
    assert {answer.status_code for answer in answers} <= {400, 413, 503}
    assert_unharmed(deployment, working)


def test_large_bodies_that_come_at_once_are_taken_in_one_by_one(
    deployment: FaultDeployment, working: "Future[Batch]"
) -> None:
    url = deployment.cluster.door_url
    with (
        watched(deployment, url, "orchestrator-0"),
        posted(f"{url}/results", large_results(60 * MIB), codec.MSGPACK, 8) as answers,
    ):
        pass
    assert {answer.status_code for answer in answers} <= {409, 503}
    assert_unharmed(deployment, working)
