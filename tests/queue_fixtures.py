"""Both implementations of the queues: the real Redis is started once, each test has own keys
and the rights that an operator would give Rollyard in a Redis shared with others."""

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from orchestrator.queues.contract import Queues
from orchestrator.queues.memory_queues import MemoryQueues
from orchestrator.queues.operations import QuarantineSettings
from orchestrator.queues.redis_queues import RedisQueues

LEASE_SECONDS = 0.4
QUARANTINE = QuarantineSettings(after_failures=3, first_seconds=0.1)
LIMITED_USER = "yard"
PASSWORD = "only-for-the-tests"


@pytest.fixture(scope="session")
def admin_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "orchestrator.redis_server", "--port", str(port)]
    data_dir = tmp_path_factory.mktemp("redis")
    with Path(data_dir / "log").open("w") as log:
        server = subprocess.Popen([*command, "--data-dir", str(data_dir)], stdout=log, stderr=log)
    url = f"redis://127.0.0.1:{port}"
    try:
        wait_until_redis_answers(url, log_path=data_dir / "log")
        yield url
    finally:
        server.kill()
        server.wait(10)


@pytest.fixture(scope="session")
def redis_url(admin_redis_url: str) -> str:
    """Sees our own keys alone, and may administer nothing."""
    redis.Redis.from_url(admin_redis_url).acl_setuser(
        LIMITED_USER,
        enabled=True,
        passwords=[f"+{PASSWORD}"],
        keys=["rollyard:*"],
        categories=["+@all", "-@admin", "-@dangerous"],
    )
    return admin_redis_url.replace("redis://", f"redis://{LIMITED_USER}:{PASSWORD}@")


def wait_until_redis_answers(url: str, log_path: Path) -> None:
    deadline = time.monotonic() + 20
    client = redis.Redis.from_url(url)
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                pytest.fail(f"Redis does not start: {log_path.read_text()}")
            time.sleep(0.02)


@pytest.fixture(params=["memory", "redis"])
def queues(request: pytest.FixtureRequest) -> Queues:
    return make_queues(request, LEASE_SECONDS)


@pytest.fixture(params=["memory", "redis"])
def patient_queues(request: pytest.FixtureRequest) -> Queues:
    """Leases outlive the test."""
    return make_queues(request, 60.0)


def make_queues(request: pytest.FixtureRequest, lease_seconds: float) -> Queues:
    if request.param == "memory":
        return MemoryQueues(lease_seconds=lease_seconds, quarantine=QUARANTINE)
    url: str = request.getfixturevalue("redis_url")
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    return RedisQueues(url, lease_seconds=lease_seconds, prefix=prefix, quarantine=QUARANTINE)
