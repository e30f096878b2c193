"""State that another version of Rollyard has left in Redis is refused, before anything is done."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from launch.doctor.check import CheckVerdict
from launch.doctor.queues import storage_checks
from launch.free_ports import free_port
from orchestrator.app import create_app
from orchestrator.queues import Queues
from orchestrator.queues.connection import STATE_VERSION
from orchestrator.service import Orchestrator
from rollyard.errors import OtherStateVersion
from rollyard.messages import AgentServer, RunSettings
from serving.gunicorn import ENDED_FOR_GOOD
from tests.queue_fixtures import QueueMaker, embedded_redis

OURS = str(STATE_VERSION).encode()


@pytest.fixture
def store(admin_redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(admin_redis_url) as client:
        yield client


@pytest.fixture
def version(queues: Queues) -> str:
    """The key that holds it."""
    return queues.connection.key("version")


def test_a_fresh_store_gets_our_version_before_anything_else(
    queues: Queues, store: "redis.Redis", version: str
) -> None:
    assert queues.runs.ids() == []
    assert store.get(version) == OURS


def test_a_store_of_another_version_is_refused_and_left_as_it_is(
    queues: Queues, store: "redis.Redis", version: str, server: AgentServer
) -> None:
    store.set(version, STATE_VERSION + 1)
    for move in (queues.runs.ids, queues.leases.lease, lambda: queues.servers.register(server)):
        with pytest.raises(OtherStateVersion, match=f"with version {STATE_VERSION + 1} of"):
            move()
    assert store.keys(queues.connection.key("*")) == [version.encode()]


def test_a_store_from_before_versions_is_refused(
    queues: Queues, store: "redis.Redis", version: str
) -> None:
    store.sadd(queues.connection.key("runs"), "train")
    with pytest.raises(OtherStateVersion, match="before versions were numbered"):
        queues.runs.ids()
    assert store.get(version) is None


def test_a_store_that_lost_everything_meanwhile_is_ours_again_with_its_first_run(
    make_queues: QueueMaker, store: "redis.Redis"
) -> None:
    queues = make_queues(Queues)
    assert queues.runs.ids() == []
    store.delete(queues.connection.key("version"))
    queues.runs.create(RunSettings(run_id="train"))
    assert store.get(queues.connection.key("version")) == OURS


def test_orchestrators_that_start_at_once_agree(
    redis_url: str, store: "redis.Redis", queues: Queues, version: str
) -> None:
    prefix, together = queues.connection.key(""), threading.Barrier(8)

    def start(_: int) -> list[str]:
        started = Queues(redis_url, prefix=prefix)
        together.wait(30)
        return started.runs.ids()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(start, range(8))) == [[]] * 8
    assert store.get(version) == OURS


def test_of_two_versions_that_start_at_once_the_first_one_has_the_store(
    queues: Queues, store: "redis.Redis", version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_if_new = redis.Redis.set

    def after_another(client: "redis.Redis", name: str, value: bytes, **how: bool) -> object:
        set_if_new(store, version, STATE_VERSION + 1)
        return set_if_new(client, name, value, nx=how["nx"], get=how["get"])

    monkeypatch.setattr(redis.Redis, "set", after_another)
    with pytest.raises(OtherStateVersion):
        queues.runs.ids()
    monkeypatch.undo()
    assert store.get(version) == str(STATE_VERSION + 1).encode()


def test_an_orchestrator_refuses_it_with_one_sentence(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as url:
        redis.Redis.from_url(url).set("rollyard:version", STATE_VERSION + 1)
        command = [sys.executable, "-m", "orchestrator", "--port", str(free_port())]
        ended = subprocess.run(
            [*command, "--redis-url", url], capture_output=True, text=True, timeout=60
        )
    assert ended.returncode == 2
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("orchestrator: the runs in this Redis were stored with version")
    assert sentence.endswith("or another --redis-prefix")


def test_an_orchestrator_that_was_there_before_its_redis_is_not_ready_and_ends(
    queues: Queues, store: "redis.Redis", version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set(version, STATE_VERSION + 1)
    exits, ended = list[int](), threading.Event()

    def end(status: int) -> None:
        exits.append(status)
        ended.set()

    monkeypatch.setattr("orchestrator.service.os._exit", end)
    others = set(threading.enumerate())
    orchestrator = Orchestrator(queues)
    try:
        assert ended.wait(30)
        answer = create_app(orchestrator).test_client().get("/readyz")
    finally:
        orchestrator.close()
        for loop in set(threading.enumerate()) - others:
            loop.join(30)  # later its end would be that of the test process
    assert set(exits) == {ENDED_FOR_GOOD}
    assert answer.status_code >= 500
    assert "were stored with version" in answer.text


def test_the_doctor_says_when_the_data_of_another_version_was_put_there(
    queues: Queues, store: "redis.Redis", version: str
) -> None:
    def verdict() -> CheckVerdict:
        (found,) = (c for c in storage_checks(queues.store.describe()) if c.name == "state version")
        return found.verdict

    assert verdict() is CheckVerdict.OK
    store.set(version, STATE_VERSION + 1)
    assert verdict() is CheckVerdict.FAILED
