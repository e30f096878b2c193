"""Queues of different depth side by side: the cost of taking a Job, and the memory of a queued one.

The queues are the orchestrator's own over a durable Redis, without the orchestrator around them:
nothing else takes Jobs, so that the depth stays what it is.
"""

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import msgspec
import redis

from benchmarks.deployment import BODY, new_cluster
from benchmarks.workloads import ENVIRONMENT
from chaos.cluster import Cluster
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.errors import DeadlineExceeded
from rollyard.messages import AgentServer, Criterion, Prompt, RunSettings

GROUP_SIZE = 8
TOGETHER = 64
"""Prompts fed in one move."""
BLOCK = 100
"""Jobs taken from one queue before it is the other's turn."""
BLOCKS = 20
SETTLE_SECONDS = 60.0
LONG_BODY = "x" * 8192
LONG_GROUPS = 500

Fed = Callable[[int], None]
"""A function that is told how many Jobs were queued since its last call."""


class Queue:
    """One Run with Jobs waiting, whose environments take turns, and enough free Slots to take
    `BLOCK * BLOCKS` of them."""

    def __init__(self, cluster: Cluster, environments: Sequence[str] = (ENVIRONMENT,)) -> None:
        self.queues = Queues(cluster.redis_url)
        self.environments = tuple(environments)
        self._redis = redis.Redis.from_url(cluster.redis_url)
        settings = RunSettings(run_id="deep", group_size=GROUP_SIZE, criterion=Criterion.COMPLETE)
        self.queues.runs.create(settings)
        self._open()
        self.queues.servers.register(
            AgentServer(
                server_id="taker",
                url="http://127.0.0.1:9",
                slots=BLOCK * BLOCKS,
                environments=self.environments,
            )
        )
        self._groups = 0
        self._body_bytes = 0
        self._empty_bytes = self._used_bytes()

    def fill(self, jobs: int, body: str, fed: Fed) -> None:
        """Queue this many Jobs more."""
        groups = range(self._groups, self._groups + jobs // GROUP_SIZE)
        for first in range(groups.start, groups.stop, TOGETHER):
            together = groups[first - groups.start :][:TOGETHER]
            prompts = [self._prompt(group, body) for group in together]
            self.queues.tasks.submit("deep", prompts, max_queued=sys.maxsize)
            fed(len(prompts) * GROUP_SIZE)
        self._groups = groups.stop
        self._body_bytes += len(groups) * len(codec.encode(self._prompt(0, body)))

    def take(self) -> list[float]:
        """Lease a block of Jobs, and return the seconds that each took."""
        taken = []
        for _ in range(BLOCK):
            began = time.perf_counter()
            leased = self.queues.leases.lease()
            taken.append(time.perf_counter() - began)
            assert leased
        return taken

    def settle(self) -> None:
        """Wait until Redis has rewritten the log of its writes, as it does after it was filled."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._redis.info("persistence")["aof_rewrite_in_progress"]:
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"Redis rewrites its log for over {SETTLE_SECONDS:g} s")
            time.sleep(0.1)

    def script_microseconds(self) -> float:
        """Take a block, and return the time that Redis itself spent on one Job."""
        self._redis.config_resetstat()
        self.take()
        return float(self._redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])

    def bytes_per_job_beyond_body(self) -> float:
        jobs = self._groups * GROUP_SIZE
        return (self._used_bytes() - self._empty_bytes - self._body_bytes) / jobs

    def used_bytes(self) -> int:
        return self._used_bytes()

    def _open(self) -> None:
        """Open the Run, as the collector does once the trainer has requested a Batch."""
        self.queues.events.tell("deep", BatchRequested(batch_id="b", requested_batch_size=1))
        self.queues.events.conclude(
            "deep", Conclusion(after=0, events=1, state=SamplerState(), decisions=[Open()])
        )

    def _prompt(self, group: int, body: str) -> Prompt:
        environment = self.environments[group % len(self.environments)]
        instance = {"data_source": environment, "question": body}
        return Prompt(prompt_id=f"{group:08d}", instance=instance)

    def _used_bytes(self) -> int:
        return int(self._redis.info("memory")["used_memory"])


class TakeCost(msgspec.Struct):
    """Median cost of taking one Job from a queue."""

    microseconds: float
    script_microseconds: float
    """Redis' own part of it."""


def take_costs(queues: Sequence[Queue]) -> list[TakeCost]:
    """The cost for each queue. They take turns, so that all share the machine's slow moments."""
    taken: dict[Queue, list[float]] = {queue: [] for queue in queues}
    for _ in range(BLOCKS // 2):
        for queue, seconds in taken.items():
            seconds += queue.take()
    scripts: dict[Queue, list[float]] = {queue: [] for queue in queues}
    for _ in range(BLOCKS - BLOCKS // 2):
        for queue, microseconds in scripts.items():
            microseconds.append(queue.script_microseconds())
    return [
        TakeCost(
            microseconds=round(median(taken[queue]) * 1e6, 1),
            script_microseconds=round(median(scripts[queue]), 1),
        )
        for queue in queues
    ]


class QueueDepths(msgspec.Struct):
    deep_jobs: int
    shallow_jobs: int
    deep_take_microseconds: float
    shallow_take_microseconds: float
    deep_script_microseconds: float
    shallow_script_microseconds: float
    bytes_per_queued_job: float
    prompt_copies_per_group: float

    @property
    def take_cost_ratio(self) -> float:
        """Cost on the deep queue over that on the shallow one: of the whole round trip, or of
        Redis' own part of it, whichever is worse."""
        return max(
            self.deep_take_microseconds / self.shallow_take_microseconds,
            self.deep_script_microseconds / self.shallow_script_microseconds,
        )


def measure(deep_jobs: int, shallow_jobs: int, fed: Fed) -> QueueDepths:
    with new_cluster() as one, new_cluster() as other:
        shallow, deep = Queue(one), Queue(other)
        shallow.fill(shallow_jobs, BODY, fed)
        deep.fill(deep_jobs, BODY, fed)
        occupied = deep.bytes_per_job_beyond_body()
        for queue in (shallow, deep):
            queue.settle()
        of_shallow, of_deep = take_costs((shallow, deep))
        return QueueDepths(
            deep_jobs=deep_jobs,
            shallow_jobs=shallow_jobs,
            deep_take_microseconds=of_deep.microseconds,
            shallow_take_microseconds=of_shallow.microseconds,
            deep_script_microseconds=of_deep.script_microseconds,
            shallow_script_microseconds=of_shallow.script_microseconds,
            bytes_per_queued_job=round(occupied, 1),
            prompt_copies_per_group=round(_copies(shallow, fed), 2),
        )


def _copies(queue: Queue, fed: Fed) -> float:
    """Number of copies of a prompt that the queue holds, from the memory that longer prompts
    add."""
    jobs, used = LONG_GROUPS * GROUP_SIZE, queue.used_bytes()
    queue.fill(jobs, BODY, fed)
    short, used = queue.used_bytes() - used, queue.used_bytes()
    queue.fill(jobs, LONG_BODY, fed)
    long = queue.used_bytes() - used
    return (long - short) / ((len(LONG_BODY) - len(BODY)) * LONG_GROUPS)
