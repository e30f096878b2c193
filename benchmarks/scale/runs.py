"""Many Runs, one very large Run, and many calls that wait for one: their cost for all others.

The orchestrator works over a durable Redis. For the large Run nothing takes Jobs, so that all of
them are queued when it is closed; for the waits there are stand-in agent servers.
"""

import threading
import time
from statistics import median

import msgspec
import redis
import requests

from benchmarks.deployment import BODY, BenchDeployment, new_cluster
from benchmarks.workloads import ENVIRONMENT
from chaos.settings import HOST
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard.messages import AgentServer, BatchRequest, Criterion, Prompt, RunSettings
from rollyard.training_run import TrainingRun

RUNS = 64
GROUPS_OF_EACH = 64
LOOKS = 9
TOGETHER = 64
"""Prompts fed in one move."""
WAITERS = 5
BATCHES = 20
"""Batches in each of `ROUNDS` rounds without waiting calls, and with them."""
ROUNDS = 9
WAIT_SECONDS = 3
"""Time that a call waits at most, and a round for its callers to leave: short beside what the
calls cost, long beside a Batch."""
SMALL_REQUESTS = 7


class ManyRuns(msgspec.Struct):
    runs: int
    status_milliseconds: float
    """Time of a look at all Runs."""
    closed_jobs: int
    concluding_seconds: float
    """Time until the collector had heard of every prompt of the large Run."""
    small_step_milliseconds: float
    """The longest request of another Run meanwhile."""
    closing_seconds: float
    longest_call_milliseconds: float
    """The longest call of Redis while the large Run was closed."""
    batches_per_second: float
    batches_per_second_with_waiters: float

    @property
    def rate_with_waiters(self) -> float:
        """The rate with waiting calls, over that without."""
        return self.batches_per_second_with_waiters / self.batches_per_second


def measure(jobs: int) -> ManyRuns:
    with new_cluster() as cluster:
        orchestrator = Orchestrator(Queues(cluster.redis_url))
        orchestrator.queues.servers.register(
            AgentServer(server_id="a", url=f"http://{HOST}:9", slots=1, environments=("none",))
        )
        status = _status_seconds(orchestrator)
        concluding, small_step = _feed(orchestrator, jobs)
        closing, longest = _close(orchestrator, cluster.ports.redis)
        orchestrator.close()
    alone, waited_for = _rates()
    return ManyRuns(
        runs=RUNS,
        status_milliseconds=round(status * 1e3, 1),
        closed_jobs=jobs,
        concluding_seconds=round(concluding, 2),
        small_step_milliseconds=round(small_step * 1e3, 1),
        closing_seconds=round(closing, 2),
        longest_call_milliseconds=round(longest * 1e3, 2),
        batches_per_second=round(alone, 2),
        batches_per_second_with_waiters=round(waited_for, 2),
    )


def _status_seconds(orchestrator: Orchestrator) -> float:
    """Time of a look at many Runs, each with Groups open."""
    for number in range(RUNS):
        run_id = f"run-{number}"
        orchestrator.trainers.create_run(_settings(run_id))
        orchestrator.queues.tasks.submit(run_id, _prompts(0, GROUPS_OF_EACH))
    _wait_until_concluded(orchestrator.queues, [f"run-{number}" for number in range(RUNS)])
    taken = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        assert len(orchestrator.status().runs) == RUNS
        taken.append(time.perf_counter() - began)
    return median(taken)


def _feed(orchestrator: Orchestrator, jobs: int) -> tuple[float, float]:
    """Feed the large Run while another one asks for Batches; the seconds until all is concluded,
    and those of the longest request."""
    queues, trainers = orchestrator.queues, orchestrator.trainers
    trainers.create_run(_settings("large"))
    trainers.create_run(_settings("small"))
    over, steps = threading.Event(), list[float]()

    def ask() -> None:
        for number in range(SMALL_REQUESTS):
            began = time.perf_counter()
            request = BatchRequest(batch_id=f"b{number}", requested_batch_size=1)
            trainers.request_batch("small", request)
            steps.append(time.perf_counter() - began)
            if over.wait(0.5):
                return

    began = time.perf_counter()
    asking = threading.Thread(target=ask)
    asking.start()
    for first in range(0, jobs, TOGETHER):
        queues.tasks.submit("large", _prompts(first, min(first + TOGETHER, jobs)), max_queued=jobs)
    _wait_until_concluded(queues, ["large"])
    seconds = time.perf_counter() - began
    over.set()
    asking.join()
    return seconds, max(steps)


def _close(orchestrator: Orchestrator, port: int) -> tuple[float, float]:
    with redis.Redis(port=port) as store:
        store.config_set("slowlog-log-slower-than", 1000)
        store.slowlog_reset()
        began = time.perf_counter()
        orchestrator.trainers.close_run("large")
        seconds = time.perf_counter() - began
        slow = [each["duration"] / 1e6 for each in store.slowlog_get(128)]
    return seconds, max(slow, default=0.001)


def _rates() -> tuple[float, float]:
    """Batches a second of one Run, alone and while others wait for its status, in turns."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    with BenchDeployment(servers=1, slots=16, workload=("--job-seconds", "0")) as deployment:
        run = deployment.run(group_size=4, look_ahead_jobs=16)
        _train(run)
        for _ in range(ROUNDS):
            for with_waiters, found in rates.items():
                over = threading.Event()
                waiters = _waiters(deployment.port, run.run_id, over) if with_waiters else []
                began = time.perf_counter()
                _train(run)
                found.append(BATCHES / (time.perf_counter() - began))
                over.set()
                for waiter in waiters:
                    waiter.join()
    return median(rates[False]), median(rates[True])


def _train(run: TrainingRun) -> None:
    for _ in range(BATCHES):
        run.ack(run.rollout(4))


def _waiters(port: int, run_id: str, over: threading.Event) -> list[threading.Thread]:
    def wait() -> None:
        url = f"http://{HOST}:{port}/runs/{run_id}?wait_seconds={WAIT_SECONDS}&exhausted=true"
        while not over.is_set():
            requests.get(url, timeout=2 * WAIT_SECONDS)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(WAITERS)]
    for thread in threads:
        thread.start()
    return threads


def _settings(run_id: str) -> RunSettings:
    return RunSettings(
        run_id=run_id, group_size=1, criterion=Criterion.COMPLETE, max_staleness=SMALL_REQUESTS
    )


def _wait_until_concluded(queues: Queues, run_ids: list[str]) -> None:
    while any(queues.runs.read(run_id).events_waiting for run_id in run_ids):
        time.sleep(0.02)


def _prompts(first: int, end: int) -> list[Prompt]:
    instance = {"data_source": ENVIRONMENT, "question": BODY}
    return [Prompt(prompt_id=f"{number:08d}", instance=instance) for number in range(first, end)]
