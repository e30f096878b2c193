"""Rewards of this machine: each task is graded in a process that is killed at its deadline.

- Owns the zygote of the graders, which starts with the first task, and its processes.
- A process has one task at a time, and ends with whatever it started. One that failed is used no
  more, and neither is one that had many tasks, since graders leak.
- At most `processes` tasks are graded at once. What waits for longer than grading may take is not
  graded at all; what is graded has all of its time, since a task that overruns it is to blame.
"""

import os
import threading
from collections import deque
from collections.abc import Iterable
from importlib.metadata import EntryPoint

import msgspec

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import ProcessHost
from agent_server.rewards.grader_process import GraderProcess, ProcessLost
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import GraderFailed, LaunchError, Unavailable
from rollyard.messages import Grade, check

_MAX_TASKS = 500
"""Number of tasks after which a process is replaced."""


class LocalRewardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the grading on this machine."""

    task_seconds: float = 20.0
    """Time for one task, and for its wait for a process."""
    processes: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    """Number of tasks that are graded at once."""
    limits: ProcessLimits = ProcessLimits()

    def __post_init__(self) -> None:
        check(self.task_seconds > 0, f"task_seconds must be positive, got {self.task_seconds}")
        check(self.processes >= 1, f"processes must be positive, got {self.processes}")


class NoGrader(GraderFailed):
    """The absence of a grader for a `data_source`."""


class LocalRewards:
    """`Rewards` of the graders that are installed."""

    def __init__(self, graders: Iterable[EntryPoint], settings: LocalRewardSettings) -> None:
        self._graders = {point.name: point.value for point in graders}
        self._settings = settings
        self._places = threading.Semaphore(settings.processes)
        self._lock = threading.Lock()
        """Lock that is held for as long as the graders take to import."""
        self._host: ProcessHost | None = None
        self._idle: deque[tuple[str, GraderProcess]] = deque()
        """Processes that wait for their next task, with what they grade, oldest first."""
        self._closed = False

    def score(self, task: ScoreTask) -> Grade:
        value = self._graders.get(task.data_source)
        if value is None:
            raise NoGrader(
                f"there is no grader for the data_source {task.data_source!r}",
                fix=f"it must be one of: {', '.join(sorted(self._graders)) or 'none is installed'}",
            )
        if not self._places.acquire(timeout=self._settings.task_seconds):
            raise Unavailable(
                f"no process to grade in was free within {self._settings.task_seconds:g} s",
                fix="grade in a reward service, or raise --reward-seconds",
            )
        try:
            return self._graded(value, task)
        finally:
            self._places.release()

    def close(self) -> None:
        """End every process; a later `score` raises `Unavailable`."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop()[1].close()
            if self._host is not None:
                self._host.close()

    def _graded(self, value: str, task: ScoreTask) -> Grade:
        while True:
            process = self._take(value)
            was_idle = process.tasks > 0
            try:
                grade = process.score(task, self._settings.task_seconds)
            except ProcessLost:
                process.close()
                if not was_idle:  # it may have been lost before it had the task
                    raise
            except BaseException:
                process.close()
                raise
            else:
                self._give_back(value, process)
                return grade

    def _take(self, value: str) -> GraderProcess:
        """A process for this grader, the one that was used last if there is one."""
        with self._lock:
            for idle in reversed(self._idle):
                if idle[0] == value:
                    self._idle.remove(idle)
                    return idle[1]
            return GraderProcess(self._started_host().process(value))

    def _give_back(self, value: str, process: GraderProcess) -> None:
        """Keep a process for its next task, or close one: as many are kept as can be used."""
        with self._lock:
            if not self._closed and process.tasks < _MAX_TASKS:
                self._idle.append((value, process))
                if len(self._idle) <= self._settings.processes:
                    return
                _, process = self._idle.popleft()
        process.close()

    def _started_host(self) -> ProcessHost:
        if self._closed:
            raise Unavailable("this service is shutting down")
        if self._host is None:
            values = sorted(set(self._graders.values()))
            try:
                self._host = ProcessHost(
                    [EntryPoint(value, value, "") for value in values],
                    self._settings.limits,
                    what="graders",
                    serve="agent_server.rewards.grading:serve",
                )
            except LaunchError as error:
                raise Unavailable(error.message, fix=error.fix) from error
        return self._host
