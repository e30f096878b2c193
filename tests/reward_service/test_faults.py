"""What is killed with -9: a work horse, a worker, the zygote, Redis, and the service itself."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import requests

from launch.free_ports import free_port
from launch.processes import module_command, start_process
from launch.readiness import answers, wait_until_ready
from rollyard.errors import QueueUnavailable, Unavailable
from tests.processes import lives
from tests.reward_service.processes import deepest_process, processes, worker_at_work
from tests.reward_service.running import MakeService, RewardRedis, score
from tests.waiting import until


@pytest.mark.parametrize("victim", ["work horse", "worker"])
def test_a_task_whose_process_is_killed_is_tried_again(
    make_service: MakeService, tmp_path: Path, victim: str
) -> None:
    service, begun = make_service(), tmp_path / "begun"
    with ThreadPoolExecutor() as pool:
        graded = pool.submit(score, service, "second_time", str(begun))
        until("it is at work", begun.exists)
        (deepest_process() if victim == "work horse" else worker_at_work()).kill()
        assert graded.result().score == 1.0


def test_the_work_horse_dies_with_its_worker(make_service: MakeService, tmp_path: Path) -> None:
    service, begun = make_service(answer_seconds=1), tmp_path / "begun"
    with ThreadPoolExecutor() as pool:
        pool.submit(score, service, "second_time", str(begun))
        until("it is at work", begun.exists)
        horse = deepest_process()
        worker_at_work().kill()
        until("the work horse ends", lambda: not lives(horse))


def test_a_task_whose_processes_are_always_killed_is_unavailable(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service()
    with ThreadPoolExecutor() as pool:
        graded = pool.submit(score, service, "first_time", str(tmp_path))
        for attempt in range(3):
            until("it is at work", (tmp_path / str(attempt)).exists)
            deepest_process().kill()
        with pytest.raises(Unavailable, match="'first_time' was killed by SIGKILL"):
            graded.result()
    assert len(list(tmp_path.iterdir())) == 3


def test_the_zygote_and_its_workers_are_replaced(make_service: MakeService, tmp_path: Path) -> None:
    service, begun = make_service(), tmp_path / "begun"
    with ThreadPoolExecutor() as pool:
        graded = pool.submit(score, service, "second_time", str(begun))
        until("it is at work", begun.exists)
        zygote = worker_at_work().parent()
        assert zygote is not None
        zygote.kill()
        assert graded.result().score == 1.0


def test_while_redis_is_away_nothing_is_graded_and_then_everything_is(
    make_service: MakeService, tmp_path: Path
) -> None:
    own = RewardRedis(tmp_path)
    service = make_service(own.address)
    assert score(service, "same").score == 1.0
    own.kill()
    with pytest.raises(QueueUnavailable, match="the Redis of the reward service"):
        score(service, "same")
    with pytest.raises(QueueUnavailable):
        service.check_ready()
    own.start()
    assert score(service, "same").score == 1.0
    service.close()
    own.kill()


def test_a_task_that_redis_was_killed_with_is_unavailable(
    make_service: MakeService, tmp_path: Path
) -> None:
    own, begun = RewardRedis(tmp_path), tmp_path / "begun"
    service = make_service(own.address)
    with ThreadPoolExecutor() as pool:
        graded = pool.submit(score, service, "second_time", str(begun))
        until("it is at work", begun.exists)
        own.kill()
        with pytest.raises(QueueUnavailable, match="the Redis of the reward service"):
            graded.result()
    assert service.status().tasks == 0


def test_a_service_that_is_killed_leaves_no_process(
    reward_redis: RewardRedis, tmp_path: Path
) -> None:
    password, port = tmp_path / "password", free_port()
    password.write_text(reward_redis.address.password)
    password.chmod(0o600)
    command = module_command(
        "reward_service",
        *("--port", str(port), "--redis-url", reward_redis.address.url),
        *("--redis-password-file", str(password)),
    )
    url = f"http://127.0.0.1:{port}"
    started = start_process("rewards", command, tmp_path / "rewards.log")
    wait_until_ready(started, lambda: answers(f"{url}/readyz"), 60)
    family = processes(psutil.Process(started.process.pid))
    assert family
    for process in (psutil.Process(started.process.pid), *family):
        with suppress(psutil.NoSuchProcess):  # it ended with those that were killed before
            if "reward_service" in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
    until("everything ends", lambda: not any(map(lives, family)))
    started.process.wait(10)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/livez", timeout=5)
