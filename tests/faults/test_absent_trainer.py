"""Fault 15 of the fault catalogue in docs/reliability.md: the trainer is gone for hours.

Its Batch waits for it, its Jobs are held, the backlog ends at a limit beyond which a feeder is told
to come back later, and neither the orchestrator nor Redis grows.
"""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from chaos import work
from orchestrator.queues.tasks import MAX_QUEUED_JOBS
from rollyard import Client
from rollyard.api import OrchestratorAPI, RunAPI
from tests.faults import wire
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment
from tests.faults.scale import scaled, timeout_seconds

GONE_SECONDS = scaled(4, 600)
MAX_GROWTH_BYTES = 50 * 2**20
GROUPS = 8
FLOODED, FLOODED_GROUP_SIZE = "flooded", 2000
"""A Run whose feeder does not wait to be asked."""
FEEDERS, WATCHERS = 3, 2
FULL_SECONDS = 60.0
"""For the feeders to reach the limit, also on a busy machine."""


def resident_bytes(deployment: FaultDeployment) -> int:
    """Of the orchestrator and of Redis, with their children."""
    roots = [
        psutil.Process(deployment.cluster.service(name).process.pid)
        for name in ("orchestrator-0", "redis")
    ]
    family = [process for root in roots for process in (root, *root.children())]
    return sum(process.memory_info().rss for process in family)


def keep_doing(work_once: Callable[[], object], over: threading.Event) -> int:
    """Returns how often."""
    for times in itertools.count():
        if over.is_set():
            return times
        work_once()
    raise AssertionError


def press(deployment: FaultDeployment, seconds: float) -> None:
    """Feed a Run without being asked, and look at the other, for so long and up to the limit."""
    numbers, url, over = itertools.count(), deployment.cluster.door_url, threading.Event()
    full = threading.Event()
    client = Client(url)

    def feed() -> None:
        answer = wire.feed(url, FLOODED, next(numbers))
        if not answer.ok:
            wire.assert_refused_for_now(answer, "Unavailable")
            full.set()

    with ThreadPoolExecutor(FEEDERS + WATCHERS) as threads:
        pressing = [threads.submit(keep_doing, feed, over) for _ in range(FEEDERS)]
        watching = [threads.submit(keep_doing, client.status, over) for _ in range(WATCHERS)]
        time.sleep(seconds)  # the fault is that it lasts
        reached = full.wait(FULL_SECONDS)
        over.set()
        assert reached
        assert all(done.result() for done in (*pressing, *watching))


@pytest.mark.timeout(timeout_seconds(900))
def test_nothing_grows_while_the_trainer_is_gone(make_deployment: MakeDeployment) -> None:
    deployment = make_deployment(agent_servers=2)
    deployment.start()
    client = Client(deployment.cluster.door_url)
    rows = ({"data_source": work.DATA_SOURCE, "number": n} for n in itertools.count())
    run = client.run(rows, run_id="train", group_size=work.GROUP_SIZE)
    run.ack(run.rollout(GROUPS))
    waiting = run.rollout(GROUPS)
    client.run([], run_id=FLOODED, group_size=FLOODED_GROUP_SIZE)
    deployment.wait_for_standstill("train")
    before, accepted = resident_bytes(deployment), run.status().counters.jobs_accepted
    press(deployment, GONE_SECONDS)
    growth = resident_bytes(deployment) - before
    assert growth < MAX_GROWTH_BYTES
    over = deployment.counters(FLOODED).jobs_queued - MAX_QUEUED_JOBS
    assert 0 <= over < FEEDERS * FLOODED_GROUP_SIZE  # what was on its way at the limit
    assert run.status().counters.jobs_accepted == accepted
    again = RunAPI(OrchestratorAPI(deployment.cluster.door_url), "train").fetch(waiting.batch_id)
    assert again.groups == waiting.groups
    run.ack(again)
    assert len(run.rollout(GROUPS).groups) == GROUPS
