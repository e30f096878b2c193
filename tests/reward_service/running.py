"""A Redis of the reward service as a test starts it, and what a service is asked in tests."""

from collections.abc import Callable
from pathlib import Path

import redis

from agent_server.rewards.protocol import ScoreTask
from launch.free_ports import free_port
from launch.processes import Started, module_command, start_process
from launch.readiness import accepts, wait_until_ready
from orchestrator.queues.address import RedisAddress
from reward_service.messages import Score
from reward_service.redis_server import USER
from reward_service.service import RewardService
from rollyard.tokens import make_password_file, read_secret

GRADERS = (
    *("same", "warm", "raises", "gives_text", "lacks_a_judge", "leaves", "crashes", "hoards"),
    *("sleeps", "hangs", "second_time", "first_time"),
)

TOKENS = """
admin admin-0123456789abcdef
worker worker-0123456789abcdef
read read-0123456789abcdef
"""

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


def task(grader: str, answer: str = "42") -> ScoreTask:
    return ScoreTask(data_source=grader, solution_str=answer, ground_truth="42")


def score(service: RewardService, grader: str, answer: str = "42") -> Score:
    given = service.compute_score(task(grader, answer))
    assert isinstance(given, Score)
    return given
