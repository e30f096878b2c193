"""The workers: forked from a zygote that has imported everything, and gone when idle.

- Owns the zygote, which lives as long as the service and takes all workers with it.
- Each worker has a thread here, which waits for its end and tells the service of it.
"""

import threading
import time
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from uuid import uuid4

import msgspec
import structlog

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import ProcessHost
from orchestrator.queues.address import RedisAddress
from reward_service.scaling import ScalingSettings, workers_to_add
from reward_service.worker import WorkerSettings
from rollyard.errors import Unavailable

log = structlog.get_logger()

_WORKER = EntryPoint("worker", "reward_service.worker:RewardWorker", "")
_LEAST_SECONDS = 0.5
"""Time from the start of a worker until its end is told, so that what ends at once is not replaced
in a tight loop."""

Ended = Callable[[str, str], None]
"""A function that is called with the name of a worker that has ended, and how."""


def host_of(graders: Iterable[EntryPoint], limits: ProcessLimits) -> ProcessHost:
    """A zygote that has imported the graders. Raises `LaunchError` when one cannot be imported."""
    values = sorted({point.value for point in graders})
    return ProcessHost(
        [_WORKER, *(EntryPoint(value, value, "") for value in values)],
        limits,
        what="graders",
        serve="reward_service.worker:serve",
    )


class WorkerPool:
    def __init__(
        self,
        graders: Iterable[EntryPoint],
        limits: ProcessLimits,
        scaling: ScalingSettings,
        redis: RedisAddress,
        ended: Ended,
    ) -> None:
        """Import the graders. Raises `LaunchError` when one cannot be imported."""
        self._scaling = scaling
        self._redis = redis
        self._ended = ended
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        """Name of each worker -> when it was asked for, on the monotonic clock."""
        self._spent_seconds = 0.0
        """Lifetimes of the workers that have ended."""
        self._closing = threading.Event()
        self._host = host_of(graders, limits)

    @property
    def workers(self) -> int:
        with self._lock:
            return len(self._began)

    @property
    def worker_seconds(self) -> float:
        """The lifetimes of all workers together, so far."""
        with self._lock:
            now = time.monotonic()
            return self._spent_seconds + sum(now - began for began in self._began.values())

    def grow(self, tasks: int) -> None:
        """Start the workers that `tasks` are worth, beyond those there are."""
        with self._lock:
            if self._closing.is_set():
                return
            for _ in range(workers_to_add(tasks, len(self._began), self._scaling)):
                name = uuid4().hex
                self._began[name] = time.monotonic()
                threading.Thread(target=self._keep, args=(name,), name=name, daemon=True).start()

    def close(self) -> None:
        """End the zygote, and with it every worker and its task."""
        self._closing.set()
        self._host.close()

    def _keep(self, name: str) -> None:
        """Start a worker and wait for its end."""
        process = self._host.process(_WORKER.name)
        how = "left"
        try:
            process.begin()
            process.exchange(frames.SettingsFrame(msgspec.Raw(self._settings(name))))
            end = process.end()
            if (end is None or end.exit_code != 0) and not self._closing.is_set():
                how = "was lost with its zygote" if end is None else str(end)
                log.warning("worker_ended", worker=name, how=how)
        except (Unavailable, frames.BadFrame) as error:
            how = f"could not be started: {error}"
            if not self._closing.is_set():
                log.error("worker_not_started", reason=str(error))
        finally:
            process.close()
        self._closing.wait(self._began[name] + _LEAST_SECONDS - time.monotonic())
        with self._lock:
            self._spent_seconds += time.monotonic() - self._began.pop(name)
        if not self._closing.is_set():
            self._ended(name, how)

    def _settings(self, name: str) -> bytes:
        return msgspec.msgpack.encode(
            WorkerSettings(
                name=name,
                redis_url=self._redis.url,
                password=self._redis.password,
                idle_seconds=self._scaling.idle_seconds,
            )
        )
