"""Reward services in the test's process, with the graders of the agent server's tests, their real
workers, and a real Redis."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agent_server.environments.hosted.containment import ProcessLimits
from orchestrator.queues.address import RedisAddress
from reward_service.scaling import ScalingSettings
from reward_service.service import RewardService, RewardServiceSettings
from tests.agent_server.rewards.graders import points
from tests.reward_service.running import GRADERS, MakeService, RewardRedis


@pytest.fixture(scope="session")
def reward_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardRedis]:
    started = RewardRedis(tmp_path_factory.mktemp("reward-redis"))
    yield started
    started.kill()


@pytest.fixture
def make_service(reward_redis: RewardRedis) -> Iterator[MakeService]:
    """Makes services of a Redis that nobody else uses at the same time."""
    with ExitStack() as stack:

        def make(address: RedisAddress = reward_redis.address, **changes: Any) -> RewardService:
            scaling = {"most_workers": 2, "idle_seconds": 60} | changes.pop("scaling", {})
            settings = RewardServiceSettings(
                redis=address,
                scaling=ScalingSettings(**scaling),
                limits=ProcessLimits(data_bytes=1 << 28),
                **changes,
            )
            service = RewardService(points(*GRADERS), settings)
            stack.callback(service.close)
            return service

        yield make
    client = reward_redis.client()
    client.delete("rq:nothing", *client.scan_iter("rq:*"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardService]:
    """A service that the tests of a module share, with a Redis of its own."""
    own = RewardRedis(tmp_path_factory.mktemp("own-redis"))
    settings = RewardServiceSettings(
        redis=own.address,
        scaling=ScalingSettings(most_workers=2, idle_seconds=60),
        limits=ProcessLimits(data_bytes=1 << 28),
    )
    made = RewardService(points(*GRADERS), settings)
    yield made
    made.close()
    own.kill()
