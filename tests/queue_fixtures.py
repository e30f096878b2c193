"""The queues: one real Redis is started for all tests, each test has keys of its own and the
rights that an operator would give Rollyard in a Redis shared with others.

That Redis writes nothing to disk, which is quicker; a test whose subject is what survives starts
an embedded one itself.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from chaos.cluster import Cluster
from chaos.settings import ClusterSettings
from orchestrator.queues import Queues
from orchestrator.queues.limits import QuarantineSettings
from rollyard.messages import WeightUpdate

LEASE_SECONDS = 0.4
QUARANTINE = QuarantineSettings(after_failures=3, first_seconds=0.1)
LIMITED_USER = "orchestrator"
PASSWORD = "only-for-the-tests"
AnyQueues = TypeVar("AnyQueues", bound=Queues)


@contextmanager
def embedded_redis(directory: Path) -> Iterator[str]:
    """The URL of a Redis as `rollyard up` starts it."""
    with Cluster(ClusterSettings(directory=directory)) as cluster:
        cluster.start_redis()
        yield cluster.redis_url


@pytest.fixture(scope="session")
def admin_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        redis.Redis.from_url(url).config_set("appendonly", "no")
        yield url


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


class QueueMaker:
    """Makes queues whose keys nobody else has."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, kind: type[AnyQueues], **options: Any) -> AnyQueues:
        return kind(self._url, prefix=f"rollyard:test:{uuid.uuid4().hex}:", **options)


def publish(queues: Queues, version: int) -> None:
    """As if every LLM server there is had these weights now."""
    queues.weights.publish(WeightUpdate(path="/checkpoint", version=version))


@pytest.fixture(scope="session")
def make_queues(redis_url: str) -> QueueMaker:
    return QueueMaker(redis_url)


@pytest.fixture
def queues(make_queues: QueueMaker) -> Queues:
    return make_queues(Queues, lease_seconds=LEASE_SECONDS, quarantine=QUARANTINE)


@pytest.fixture
def patient_queues(make_queues: QueueMaker) -> Queues:
    """Leases outlive the test, and nobody is knocked for who does not listen."""
    return make_queues(Queues, lease_seconds=600.0, quarantine=QUARANTINE)
