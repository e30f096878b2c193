"""Rollyard as a user runs it: a durable Redis, one orchestrator process, and no-op agent servers.

- Everything is new in a directory of its own and gone when the deployment is closed.
- A process that ends too early ends the benchmark, with its last words.
"""

import http.client
import itertools
import math
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from benchmarks.noop_agent import ENVIRONMENT, IdleTimes
from launch.processes import Processes, Started
from rollyard import Client
from rollyard.errors import DeadlineExceeded, RollyardError
from rollyard.messages import Criterion
from rollyard.training_run import TrainingRun

HOST = "127.0.0.1"
START_SECONDS = 60.0
ASK_SECONDS = 240.0
"""The longest that any single measurement may take."""
BODY = "x" * 300
"""What a prompt says: about what the peers' jobs carry."""


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def wait_for_port(port: int, owner: Started) -> None:
    """Return once something listens. Raises `DeadlineExceeded`, or `SystemExit` if it ended."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if owner.process.poll() is not None:
            raise SystemExit(f"{owner.name} ended; its log:\n{owner.log and owner.log.read_text()}")
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise DeadlineExceeded(f"{owner.name} does not listen on port {port} after {START_SECONDS} s")


class Redis:
    """A Redis as `rollyard up` embeds it: every write is on disk before it is answered."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        module = (sys.executable, "-m", "orchestrator.queues.server")
        options = ("--port", str(self.port), "--data-dir", str(directory / "redis"))
        self.process = processes.start("redis", [*module, *options], directory / "redis.log")
        wait_for_port(self.port, self.process)


class BenchAgent:
    """One no-op agent server process."""

    def __init__(self, port: int, process: Started) -> None:
        self.port = port
        self.process = process

    def ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ASK_SECONDS)
        try:
            connection.request("POST", path, b"")
            return connection.getresponse().read()
        finally:
            connection.close()

    def measured(self) -> IdleTimes:
        """How long Slots were idle since the last call."""
        return msgspec.json.decode(self.ask("/measured"), type=IdleTimes)


class BenchDeployment:
    """Use as a context manager, from the main thread."""

    def __init__(
        self,
        *,
        servers: int,
        slots: int,
        job_seconds: float | None = None,
        agent: Sequence[str] = ("benchmarks.noop_agent",),
    ) -> None:
        """`agent` is the module of the agent servers, with options of its own."""
        self._directory = tempfile.TemporaryDirectory(prefix="rollyard-bench-")
        self._numbers = itertools.count()
        self._processes = Processes()
        path = Path(self._directory.name)
        try:
            self.redis = Redis(self._processes, path)
            self.port = free_port()
            module = (sys.executable, "-m", "orchestrator")
            options = ("--port", str(self.port), "--redis-url", self.redis.url)
            self.orchestrator = self._processes.start(
                "orchestrator", [*module, *options], path / "orchestrator.log"
            )
            wait_for_port(self.port, self.orchestrator)
            self.client = Client(f"http://{HOST}:{self.port}")
            if job_seconds is not None:
                agent = (*agent, "--job-seconds", str(job_seconds))
            self.agents = [self._agent(path, slots, agent) for _ in range(servers)]
            self._wait_for_servers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BenchDeployment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._processes.stop_all()
        self._directory.cleanup()

    def run(
        self, *, group_size: int, look_ahead_jobs: int, prompts: int = sys.maxsize
    ) -> TrainingRun:
        """A new Run over a dataloader of so many prompts; every complete Group counts."""
        row = {"data_source": ENVIRONMENT, "question": BODY}
        return self.client.run(
            itertools.repeat(row, prompts),
            run_id=f"bench-{next(self._numbers)}",
            group_size=group_size,
            criterion=Criterion.COMPLETE,
            look_ahead_jobs=look_ahead_jobs,
        )

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time spent so far, by part."""
        parts = {"redis": self.redis.process, "orchestrator": self.orchestrator}
        spent = {name: _cpu_seconds(each.process.pid) for name, each in parts.items()}
        spent["agents"] = math.fsum(_cpu_seconds(a.process.process.pid) for a in self.agents)
        return spent

    def resident_bytes(self) -> int:
        """Memory of the orchestrator and of Redis."""
        return sum(
            process.memory_info().rss
            for started in (self.redis.process, self.orchestrator)
            for process in _family(started.process.pid)
        )

    def _agent(self, path: Path, slots: int, module: Sequence[str]) -> BenchAgent:
        port = free_port()
        command = [sys.executable, "-m", *module, "--port", str(port)]
        command += ["--orchestrator-port", str(self.port), "--slots", str(slots)]
        process = self._processes.start(f"agent {port}", command, path / f"agent-{port}.log")
        wait_for_port(port, process)
        return BenchAgent(port, process)

    def _wait_for_servers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(self.client.status().servers) < len(self.agents):
            self._processes.check()
            if time.monotonic() > deadline:
                raise RollyardError(f"agent servers did not register within {START_SECONDS} s")
            time.sleep(0.02)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu_seconds(pid: int) -> float:
    return math.fsum(sum(process.cpu_times()[:2]) for process in _family(pid))
