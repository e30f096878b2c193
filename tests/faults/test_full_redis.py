"""Fault 8 of the fault catalogue in docs/reliability.md: Redis is out of memory, or read-only.

What cannot be stored is refused with a 503 that says when to come back. What runs goes on, what
frees memory is taken, and when Redis takes writes again, everything else is done.
"""

import itertools
import time
from collections.abc import Callable

import pytest
import redis
import requests

from chaos import work
from rollyard import Client
from rollyard.messages import RunSettings
from tests.faults import wire
from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import FaultDeployment, assert_once_each

MEMORY_BYTES = 32 * 2**20
PADDING = "x" * 2**18
HELD = RunSettings(run_id="held")
"""A Run that nobody asks a Batch of: what is fed to it stays."""

Break = Callable[["redis.Redis"], object]


def fill(store: "redis.Redis") -> None:
    store.config_set("maxmemory", 1)


def make_read_only(store: "redis.Redis") -> None:
    store.replicaof("127.0.0.1", "9")  # where no other Redis is


def mend(store: "redis.Redis") -> None:
    store.config_set("maxmemory", 0)
    store.replicaof("NO", "ONE")


def feed(deployment: FaultDeployment, number: int) -> requests.Response:
    return wire.feed(deployment.cluster.door_url, HELD.run_id, number, padding=PADDING)


def assert_refused_for_now(answer: requests.Response) -> None:
    wire.assert_refused_for_now(answer, "QueueUnavailable")


def assert_conserved(deployment: FaultDeployment) -> None:
    for run in deployment.observer.status().runs:
        places = ("queued", "leased", "accepted", "dead", "dropped")
        total = sum(getattr(run.counters, f"jobs_{place}") for place in places)
        assert run.counters.jobs_submitted == total


def test_a_full_redis_takes_no_prompt_until_there_is_memory_again(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=1)
    deployment.start()
    Client(deployment.cluster.door_url).run([], run_id=HELD.run_id)
    deployment.redis.config_set("maxmemory", MEMORY_BYTES)
    for fed in itertools.count():
        # Twice: what is concluded meanwhile may leave room for one more.
        if not feed(deployment, fed).ok and not (answer := feed(deployment, fed)).ok:
            break
    assert_refused_for_now(answer)
    assert 32 <= fed <= MEMORY_BYTES / len(PADDING)
    assert deployment.counters(HELD.run_id).jobs_submitted == fed * HELD.group_size
    assert_conserved(deployment)
    deployment.redis.config_set("maxmemory", 2 * MEMORY_BYTES)
    assert feed(deployment, fed).ok
    assert deployment.counters(HELD.run_id).jobs_submitted == (fed + 1) * HELD.group_size


def test_the_acknowledgement_that_frees_a_full_redis_is_taken(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=1)
    deployment.start()
    client = Client(deployment.cluster.door_url, patience_seconds=1)
    client.run([], run_id=HELD.run_id)
    rows = (
        {"data_source": work.DATA_SOURCE, "number": n, "padding": PADDING}
        for n in itertools.count()
    )
    run = client.run(rows, run_id="train", group_size=2)
    batch = run.rollout(16)  # holds 4 MiB; the buffers of Redis's clients come and go by 1 MiB
    deployment.redis.config_set("maxmemory", deployment.redis.info("memory")["used_memory"] - 2**20)
    assert_refused_for_now(feed(deployment, 0))
    run.ack(batch)
    assert feed(deployment, 0).ok
    assert_conserved(deployment)


@pytest.mark.parametrize("how", [fill, make_read_only])
def test_jobs_outlive_a_redis_that_takes_no_writes(
    make_deployment: MakeDeployment, how: Break
) -> None:
    deployment = make_deployment(agent_servers=2, lease_seconds=3.0)
    deployment.start()
    Client(deployment.cluster.door_url).run([], run_id=HELD.run_id)
    gate = deployment.settings.directory / "gate"
    batch = deployment.rollout([{"number": n, "gate": str(gate)} for n in range(8)], "running")
    deployment.wait_for_running(8)
    how(deployment.redis)
    assert_refused_for_now(feed(deployment, 0))
    time.sleep(deployment.settings.lease_seconds)  # the fault is that it lasts
    gate.touch()
    time.sleep(deployment.settings.lease_seconds / 2)
    mend(deployment.redis)
    groups = batch.result(30)
    counters = deployment.counters("running")
    assert_once_each(groups, range(8), counters)
    assert counters.attempts_failed == 0
    assert {group.results[0].lease.attempt for group in groups.groups} == {1}
    assert feed(deployment, 0).ok
    assert_conserved(deployment)
