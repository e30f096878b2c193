"""Reward services under bursts: workers that come with the work, beside as many all the time.

The trace has the shape of ROLLART's reward stage: the answers of a whole batch come at once, and
then none until the next batch. Its graders sleep, so that two cores can show what many would do. A
small pool that always stands is what a node reserves; elastic workers are gone between the bursts.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from rich.progress import Progress

from agent_server.rewards.protocol import ScoreTask
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_least, at_most, figures, say
from launch.free_ports import free_port
from launch.processes import module_command, start_process
from launch.readiness import accepts, wait_until_ready
from orchestrator.queues.address import RedisAddress
from reward_service.redis_server import USER
from reward_service.scaling import ScalingSettings
from reward_service.service import RewardService, RewardServiceSettings
from rollyard.messages import Grade
from rollyard.tokens import make_password_file, read_secret

ROUNDS = 3
BURSTS = 2
BATCH = 84
"""Trajectories whose answers come at once: the batch of ROLLART's figure 12."""
GAP_SECONDS = 6.0
"""Time between bursts, in which the next batch is generated."""
MEAN_SECONDS = 0.3
MOST_SECONDS = 1.5
STATIC_WORKERS = 4
"""The judges of the same figure."""
ELASTIC_WORKERS = 12
IDLE_SECONDS = 1
FROM_ZERO = 16
"""Workers that are started at once."""


class Rewarded(msgspec.Struct, frozen=True):
    """The cost of one trace."""

    reward_seconds: float
    """Time from the beginning of each burst to its last grade, together."""
    worker_seconds: float
    busy: float
    """Share of the workers' lifetimes in which they graded."""


class RewardFigures(msgspec.Struct, frozen=True):
    seconds_from_zero: tuple[float, ...]
    """Time from the first task until as many workers as tasks graded, in each round."""
    static: tuple[Rewarded, ...]
    elastic: tuple[Rewarded, ...]


def sleep(task: ScoreTask) -> Grade:
    """A grader that takes as many seconds as the answer says, and tells when it began."""
    began = time.time()
    time.sleep(float(task.solution_str))
    return Grade(1.0, metrics={"began": began})


def goals(measured: RewardFigures) -> list[Goal]:
    ratios = [
        static.reward_seconds / elastic.reward_seconds
        for static, elastic in zip(measured.static, measured.elastic, strict=True)
    ]
    return [
        at_most("rewards_zero_to_n_seconds", median(measured.seconds_from_zero), 2),
        at_least("static_over_elastic", median(ratios), 1.8),
    ]


def measure(bar: Progress) -> RewardFigures:
    """Measure the static and the elastic service in turn, several times."""
    task = bar.add_task("rewards in bursts", total=3 * ROUNDS)
    from_zero, static, elastic = [], [], []
    with _redis() as address:
        for number in range(ROUNDS):
            with _service(address, FROM_ZERO, 60) as service:
                from_zero.append(_seconds_from_zero(service))
            bar.advance(task)
            with _service(address, STATIC_WORKERS, 600) as service:
                _seconds_from_zero(service)  # its workers stand before the trace begins
                static.append(_trace(service, number))
            bar.advance(task)
            with _service(address, ELASTIC_WORKERS, IDLE_SECONDS) as service:
                elastic.append(_trace(service, number))
            bar.advance(task)
    return RewardFigures(tuple(from_zero), tuple(static), tuple(elastic))


def summary(measured: RewardFigures) -> dict[str, object]:
    """The figures to report."""
    pools = {"static": measured.static, "elastic": measured.elastic}
    return {
        "seconds_from_zero": figures(list(measured.seconds_from_zero), 2),
        **{
            f"{name}_{what}": figures([getattr(each, what) for each in pool], 2)
            for name, pool in pools.items()
            for what in Rewarded.__struct_fields__
        },
    }


def _seconds_from_zero(service: RewardService) -> float:
    began = time.time()
    workers = service.status().most_workers
    scores = service.compute_score([_task(0.5)] * workers)
    assert isinstance(scores, list)
    return max(score.metrics["began"] for score in scores) - began


def _trace(service: RewardService, seed: int) -> Rewarded:
    draw, reward_seconds, graded_seconds = random.Random(seed), 0.0, 0.0
    before = service.status().worker_seconds
    for _ in range(BURSTS):
        work = [min(MOST_SECONDS, draw.expovariate(1 / MEAN_SECONDS)) for _ in range(BATCH)]
        began = time.monotonic()
        service.compute_score([_task(seconds) for seconds in work])
        reward_seconds += time.monotonic() - began
        graded_seconds += sum(work)
        time.sleep(GAP_SECONDS)
    worker_seconds = service.status().worker_seconds - before
    return Rewarded(reward_seconds, worker_seconds, graded_seconds / worker_seconds)


def _task(seconds: float) -> ScoreTask:
    return ScoreTask(data_source="sleep", solution_str=str(seconds), ground_truth="")


@contextlib.contextmanager
def _service(address: RedisAddress, workers: int, idle_seconds: int) -> Iterator[RewardService]:
    settings = RewardServiceSettings(
        redis=address, scaling=ScalingSettings(most_workers=workers, idle_seconds=idle_seconds)
    )
    graders = [EntryPoint("sleep", "benchmarks.agents.rewards:sleep", "")]
    with contextlib.closing(RewardService(graders, settings)) as service:
        yield service


@contextlib.contextmanager
def _redis() -> Iterator[RedisAddress]:
    port = free_port()
    with TemporaryDirectory(prefix="rollyard-bench-") as name:
        directory = Path(name)
        password = directory / "password"
        make_password_file(password)
        options = ("--data-dir", name, "--password-file", str(password))
        command = module_command("reward_service.redis_server", "--port", str(port), *options)
        started = start_process("redis", command, directory / "redis.log")
        try:
            wait_until_ready(started, lambda: accepts(port), 60)
            url = f"redis://{USER}@127.0.0.1:{port}"
            yield RedisAddress(url=url, password=read_secret(password).strip())
        finally:
            started.kill()


def main() -> None:
    machine = this_machine()
    with progress_bar() as bar:
        measured = measure(bar)
    say("rewards", machine, goals(measured), summary(measured))


if __name__ == "__main__":
    main()
