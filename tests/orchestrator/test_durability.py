"""An orchestrator says at its start when its Redis may lose runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from launch.free_ports import free_port
from orchestrator.durability import check_durable, why_volatile
from orchestrator.queues import Queues
from rollyard.messages import Storage
from tests.queue_fixtures import embedded_redis


@pytest.fixture
def volatile_url(tmp_path: Path) -> Iterator[str]:
    """A Redis of its own that evicts keys and keeps no file."""
    with embedded_redis(tmp_path) as url:
        redis.Redis.from_url(url).config_set("appendonly", "no")
        redis.Redis.from_url(url).config_set("maxmemory-policy", "allkeys-lru")
        yield url


def test_a_redis_that_may_lose_runs_is_refused_by_name(volatile_url: str) -> None:
    command = [sys.executable, "-m", "orchestrator", "--port", str(free_port())]
    ended = subprocess.run(
        [*command, "--redis-url", volatile_url], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "it evicts keys when its memory is full (allkeys-lru)" in ended.stderr
    assert "it keeps no append-only file" in ended.stderr
    assert ended.stderr.rstrip().endswith("with --allow-volatile-redis")


def test_an_operator_may_go_on_with_it(
    volatile_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_durable(Queues(volatile_url).store, volatile_allowed=True)
    assert "volatile_redis" in capsys.readouterr().out


def test_the_embedded_redis_is_durable(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as url:
        check_durable(Queues(url).store, volatile_allowed=False)


def test_a_redis_that_is_not_there_yet_or_tells_nothing_is_waited_for() -> None:
    check_durable(Queues(f"redis://127.0.0.1:{free_port()}").store, volatile_allowed=False)
    assert why_volatile(Storage(kind="redis")) == []


def test_each_loss_is_told_alone() -> None:
    (eviction,) = why_volatile(Storage(kind="redis", appendonly="yes", eviction="volatile-ttl"))
    assert "evicts" in eviction
    (file,) = why_volatile(Storage(kind="redis", appendonly="no", eviction="noeviction"))
    assert "append-only" in file
