"""Rollyard as a user runs it: a durable Redis, one orchestrator, and stand-in agent servers.

- Everything is new in a directory of its own and gone when the deployment is closed.
- A process that ends while the deployment starts ends the benchmark, with the last line of its log.
"""

import contextlib
import http.client
import itertools
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.stand_in import IdleTimes
from benchmarks.workloads import ENVIRONMENT
from chaos.cluster import READY_SECONDS, Cluster
from chaos.settings import HOST, ClusterSettings
from launch.readiness import wait_until_ready
from rollyard import Client, codec
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.messages import Criterion, Share
from rollyard.training_run import TrainingRun

ASK_SECONDS = 240.0
"""Time limit of a single measurement."""
BODY = "x" * 300
"""Text of a prompt, as long as what the peers' jobs carry."""


@contextlib.contextmanager
def new_cluster(agent_servers: int = 0) -> Iterator[Cluster]:
    """A cluster whose Redis runs: as `rollyard up` embeds it, every write is on disk before it is
    answered."""
    with tempfile.TemporaryDirectory(prefix="rollyard-bench-") as name:
        settings = ClusterSettings(directory=Path(name), agent_servers=agent_servers)
        with Cluster(settings) as cluster:
            cluster.start_redis()
            yield cluster


class BenchAgent:
    """One stand-in agent server process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://{HOST}:{port}"

    def ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=ASK_SECONDS)
        try:
            connection.request("POST", path, b"")
            return connection.getresponse().read()
        finally:
            connection.close()

    def idle_times(self) -> IdleTimes:
        """Idle times of Slots since the last call."""
        return codec.decode(self.ask("/idle"), IdleTimes)


class BenchDeployment:
    """A deployment for one benchmark. Use it as a context manager, from the main thread."""

    def __init__(self, *, servers: int, slots: int, workload: Sequence[str] = ()) -> None:
        """`workload` are the options of the stand-ins that describe their Jobs."""
        self._numbers = itertools.count()
        with contextlib.ExitStack() as running:
            self._cluster = cluster = running.enter_context(new_cluster(servers))
            cluster.start_orchestrator(0)
            (self.port,) = cluster.ports.orchestrators
            self.client = Client(cluster.orchestrator_urls[0])
            self._operator = OrchestratorAPI(cluster.orchestrator_urls[0])
            running.callback(self._operator.close)
            options = ("--orchestrator-port", str(self.port), "--slots", str(slots), *workload)
            started = [
                cluster.start(f"agent-{i}", "benchmarks.stand_in", f"--port={port}", *options)
                for i, port in enumerate(cluster.ports.agents)
            ]
            self.agents = [BenchAgent(port) for port in cluster.ports.agents]
            for process, agent in zip(started, self.agents, strict=True):
                wait_until_ready(process, partial(self._knows, agent), READY_SECONDS)
            self._running = running.pop_all()

    def __enter__(self) -> "BenchDeployment":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def run(
        self,
        *,
        group_size: int,
        look_ahead_jobs: int,
        prompts: int = sys.maxsize,
        row: Mapping[str, object] = {},
    ) -> TrainingRun:
        """A new Run over a dataloader of so many prompts, which say what `row` does, too, and in
        which every complete Group is effective."""
        whole = {"data_source": ENVIRONMENT, "question": BODY, **row}
        return self.client.run(
            itertools.repeat(whole, prompts),
            run_id=f"bench-{next(self._numbers)}",
            group_size=group_size,
            criterion=Criterion.COMPLETE,
            look_ahead_jobs=look_ahead_jobs,
        )

    def share(self, run: TrainingRun, share: Share) -> None:
        """Say, as an operator does, what the Run gets of the Slots."""
        RunAPI(self._operator, run.run_id).give_share(share)

    def slot_seconds(self, run: TrainingRun) -> float:
        """Seconds that the agent servers have worked on the Run's Jobs so far."""
        return math.fsum(
            codec.decode(agent.ask("/spent"), dict[str, float]).get(run.run_id, 0.0)
            for agent in self.agents
        )

    def _knows(self, agent: BenchAgent) -> bool:
        return agent.url in {server.url for server in self.client.status().servers}

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time spent so far, by part."""
        services = self._cluster.service
        agents = [services(f"agent-{index}") for index in range(len(self.agents))]
        return {
            "redis": services("redis").seconds_computed(),
            "orchestrator": services("orchestrator-0").seconds_computed(),
            "agents": math.fsum(agent.seconds_computed() for agent in agents),
        }

    def resident_bytes(self) -> int:
        """Memory of the orchestrator and of Redis."""
        return sum(
            process.memory_info().rss
            for name in ("redis", "orchestrator-0")
            for process in self._cluster.service(name).family()
        )
