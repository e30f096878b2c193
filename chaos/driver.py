"""The driver, which carries out the faults while the trainer trains, and records them.

One thread hits the agent servers; the caller's hits the services, and starts the trainer again.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chaos import work
from chaos.agent_hits import AgentHits
from chaos.cluster import Cluster
from chaos.faults import Kind, ServiceFault, service_faults
from chaos.history import History
from chaos.observer import Observer
from chaos.settings import ChaosSettings
from rollyard.errors import DeadlineExceeded, LaunchError

LOOK_SECONDS = 0.1
"""Interval between looks at the run's progress."""

Progress = Callable[[int], None]


class Driver:
    def __init__(self, settings: ChaosSettings, cluster: Cluster, observer: Observer) -> None:
        self._settings = settings
        self._cluster = cluster
        self._observer = observer
        self._history = History(settings.directory / "driver.jsonl")
        self._faults = service_faults(settings)
        self._calm = threading.Event()

    def run(self, progress: Progress) -> None:
        """Carry out the run, from its first process to its last Batch. Raises `DeadlineExceeded` if
        it is stuck."""
        settings = self._settings
        self._history.write("started", settings={"seed": settings.seed, "jobs": settings.jobs})
        self._cluster.start_redis()
        for index in range(settings.orchestrators):
            self._cluster.start_orchestrator(index)
        for index in range(settings.agent_servers):
            self._cluster.start_agent(index)
        self._observer.start()
        self._cluster.start_llm_node()
        self._start_trainer()
        hits = AgentHits(settings, self._cluster, self._observer, self._history)
        hitting = threading.Thread(target=hits.run, args=(self._calm,), name="agent hits")
        hitting.start()
        try:
            self._hit_services(progress)
        finally:
            self._calm.set()
            hitting.join(30)
        self._rest()

    def _start_trainer(self) -> None:
        settings = self._settings
        rows = settings.jobs // work.GROUP_SIZE
        self._cluster.start_trainer(rows, settings.seed, settings.trainer_crash_share)

    def _hit_services(self, progress: Progress) -> None:
        deadline = time.monotonic() + self._settings.deadline_seconds
        while not self._trainer_is_done():
            progress(self._observer.accepted)
            if self._is_due():
                with self._held_near_its_end():
                    while self._is_due():
                        self._hit_service(self._faults.pop(0))
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"the trainer is not done after {self._settings.deadline_seconds:g} s",
                    fix=f"the logs and histories are in {self._settings.directory}",
                )
            self._calm.wait(LOOK_SECONDS)

    def _is_due(self) -> bool:
        return bool(self._faults) and self._observer.accepted >= self._faults[0].at_accepted

    @contextmanager
    def _held_near_its_end(self) -> Iterator[None]:
        """A block for faults, in which the trainer stands still if it is near its end: a fault may
        outlast two Batches, and the trainer must not be done before all faults are."""
        near = self._settings.jobs - 2 * work.LARGEST_BATCH * work.GROUP_SIZE
        if self._observer.accepted < near:
            yield
            return
        self._cluster.service("trainer").signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._cluster.service("trainer").signal(signal.SIGCONT)

    def _trainer_is_done(self) -> bool:
        code = self._cluster.trainer_exit()
        if code is None or code == 0:
            return code == 0
        if code != -signal.SIGKILL:
            raise LaunchError(
                f"the trainer ended with code {code}",
                fix=f"{self._settings.directory / 'logs' / 'trainer.log'} says why",
            )
        self._history.write("trainer_died")
        self._start_trainer()
        return False

    def _hit_service(self, fault: ServiceFault) -> None:
        self._history.write(fault.kind)
        name = f"orchestrator-{fault.index}"
        match fault.kind:
            case Kind.KILL_ORCHESTRATOR:
                self._cluster.service(name).kill()
                self._calm.wait(fault.away_seconds)
                seconds = self._cluster.start_orchestrator(fault.index)
                self._history.write("orchestrator_back", seconds=seconds)
            case Kind.KILL_REDIS:
                self._cluster.service("redis").kill()
                self._calm.wait(fault.away_seconds)
                self._history.write("redis_back", seconds=self._cluster.start_redis())
            case Kind.PAUSE_ORCHESTRATOR:
                self._cluster.service(name).signal(signal.SIGSTOP)
                self._calm.wait(self._settings.pause_seconds)
                self._cluster.service(name).signal(signal.SIGCONT)

    def _rest(self) -> None:
        """Wait until every Slot is free again, and record what is left."""
        slots = self._settings.agent_servers * self._settings.slots
        left = self._observer.rest(slots)
        self._history.write("ended", slots=slots, faults_left=len(self._faults), **left)
