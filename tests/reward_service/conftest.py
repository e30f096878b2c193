"""Reward services in the test's process, with the graders of the agent server's tests, their real
workers, and a real Redis."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from agent_server.environments.hosted.containment import ProcessLimits
from launch.ports import free_port
from launch.processes import Started, module_command, start_process
from launch.readiness import accepts, wait_until_ready
from orchestrator.queues.address import RedisAddress
from reward_service.redis_server import USER
from reward_service.scaling import ScalingSettings
from reward_service.service import RewardService, RewardServiceSettings
from rollyard.tokens import make_password_file, read_secret
from tests.agent_server.rewards.graders import points

GRADERS = (
    *("same", "raises", "gives_text", "lacks_a_judge", "leaves", "crashes", "hoards"),
    *("sleeps", "hangs", "second_time", "first_time"),
)

MakeService = Callable[..., RewardService]


class RewardRedis:
    """A Redis of the reward service, at one address for as often as it is started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._password_file = directory / "password"
        make_password_file(self._password_file)
        self.address = RedisAddress(
            url=f"redis://{USER}@127.0.0.1:{self._port}",
            password=read_secret(self._password_file).strip(),
        )
        self.start()

    def start(self) -> None:
        command = module_command(
            "reward_service.redis_server",
            *("--port", str(self._port), "--data-dir", str(self._directory)),
            *("--password-file", str(self._password_file)),
        )
        self._started: Started = start_process("redis", command, self._directory / "redis.log")
        wait_until_ready(self._started, lambda: accepts(self._port), 60)

    def kill(self) -> None:
        self._started.kill()

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.address.url, password=self.address.password)


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
