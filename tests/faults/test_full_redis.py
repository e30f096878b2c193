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
from tests.faults.conftest import MakeYard
from tests.faults.yard import FaultYard, assert_once_each

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


def feed(yard: FaultYard, number: int) -> requests.Response:
    return wire.feed(yard.troupe.door_url, HELD.run_id, number, padding=PADDING)


def assert_refused_for_now(answer: requests.Response) -> None:
    wire.assert_refused_for_now(answer, "QueueUnavailable")


def assert_conserved(yard: FaultYard) -> None:
    for run in yard.observer.status().runs:
        places = ("queued", "leased", "accepted", "dead", "dropped")
        total = sum(getattr(run.counters, f"jobs_{place}") for place in places)
        assert run.counters.jobs_submitted == total


def test_a_full_redis_takes_no_prompt_until_there_is_memory_again(make_yard: MakeYard) -> None:
    yard = make_yard(agent_servers=1)
    yard.start()
    Client(yard.troupe.door_url).run([], run_id=HELD.run_id)
    yard.redis.config_set("maxmemory", MEMORY_BYTES)
    for fed in itertools.count():
        if not (answer := feed(yard, fed)).ok:
            break
    assert_refused_for_now(answer)
    assert_refused_for_now(feed(yard, fed))
    assert 32 <= fed <= MEMORY_BYTES / len(PADDING)
    assert yard.counters(HELD.run_id).jobs_submitted == fed * HELD.group_size
    assert_conserved(yard)
    yard.redis.config_set("maxmemory", 2 * MEMORY_BYTES)
    assert feed(yard, fed).ok
    assert yard.counters(HELD.run_id).jobs_submitted == (fed + 1) * HELD.group_size


def test_the_acknowledgement_that_frees_a_full_redis_is_taken(make_yard: MakeYard) -> None:
    yard = make_yard(agent_servers=1)
    yard.start()
    client = Client(yard.troupe.door_url, patience_seconds=1)
    client.run([], run_id=HELD.run_id)
    rows = (
        {"data_source": work.DATA_SOURCE, "number": n, "padding": PADDING}
        for n in itertools.count()
    )
    run = client.run(rows, run_id="train", group_size=2)
    batch = run.rollout(16)  # holds 4 MiB; the buffers of Redis's clients come and go by 1 MiB
    yard.redis.config_set("maxmemory", yard.redis.info("memory")["used_memory"] - 2**20)
    assert_refused_for_now(feed(yard, 0))
    run.ack(batch)
    assert feed(yard, 0).ok
    assert_conserved(yard)


@pytest.mark.parametrize("how", [fill, make_read_only])
def test_jobs_outlive_a_redis_that_takes_no_writes(make_yard: MakeYard, how: Break) -> None:
    yard = make_yard(agent_servers=2, lease_seconds=3.0)
    yard.start()
    Client(yard.troupe.door_url).run([], run_id=HELD.run_id)
    gate = yard.settings.directory / "gate"
    batch = yard.rollout([{"number": n, "gate": str(gate)} for n in range(8)], "running")
    yard.wait_for_running(8)
    how(yard.redis)
    assert_refused_for_now(feed(yard, 0))
    time.sleep(yard.settings.lease_seconds)  # the fault is that it lasts
    gate.touch()
    time.sleep(yard.settings.lease_seconds / 2)
    mend(yard.redis)
    groups = batch.result(30)
    counters = yard.counters("running")
    assert_once_each(groups, range(8), counters)
    assert counters.attempts_failed == 0
    assert {group.results[0].lease.attempt for group in groups.groups} == {1}
    assert feed(yard, 0).ok
    assert_conserved(yard)
