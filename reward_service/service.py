"""The reward service as a whole: tasks go through Redis to as many workers as they are worth.

- It owns no state that must outlive it: who asks waits for the answer, and asks again without one.
- A task that its grader cannot grade is refused, one that this service could not have graded is
  `Unavailable`; neither is ever a score.
- An answer comes at most `answer_seconds` after the question.
"""

import time
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

import msgspec
import structlog
from rq.job import Job

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.rewards.protocol import ScoreTask
from orchestrator.queues.address import RedisAddress
from reward_service.messages import RewardServiceStatus, Score, score_of
from reward_service.metrics import RewardMetrics
from reward_service.outcome import TaskOutcome, failed
from reward_service.pool import WorkerPool
from reward_service.scaling import ScalingSettings
from reward_service.task_count import TaskCount
from reward_service.task_queue import TaskQueue
from rollyard.errors import GraderFailed, Unavailable
from rollyard.messages import check

log = structlog.get_logger()


class RewardServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    redis: RedisAddress
    scaling: ScalingSettings = ScalingSettings()
    limits: ProcessLimits = ProcessLimits()
    task_seconds: int = 20
    """Time for grading one task."""
    answer_seconds: int = 60
    """Time for a task, its wait for a worker and repetitions included."""
    most_tasks: int = 1024
    """Number of tasks that may wait and run."""

    def __post_init__(self) -> None:
        for name in ("task_seconds", "answer_seconds", "most_tasks"):
            value = getattr(self, name)
            check(value >= 1, f"{name} must be positive, got {value}")


class RewardService:
    def __init__(self, graders: Iterable[EntryPoint], settings: RewardServiceSettings) -> None:
        """Import the graders. Raises `LaunchError` when one cannot be imported."""
        points = tuple(graders)
        self._graders = {point.name: point.value for point in points}
        self._settings = settings
        self._count = TaskCount(settings.most_tasks)
        self._queue = TaskQueue(settings.redis)
        self._pool = WorkerPool(
            points, settings.limits, settings.scaling, settings.redis, self._worker_ended
        )
        self.metrics = RewardMetrics(self.status)

    def compute_score(self, asked: ScoreTask | list[ScoreTask]) -> Score | list[Score]:
        """Grade one task, or each of a batch. In a batch, failures stand in their places."""
        outcomes = self._outcomes([asked] if isinstance(asked, ScoreTask) else asked)
        if not isinstance(asked, ScoreTask):
            return [score_of(outcome) for outcome in outcomes]
        (outcome,) = outcomes
        outcome.given()
        return score_of(outcome)

    def status(self) -> RewardServiceStatus:
        """The work and the workers of this service."""
        return RewardServiceStatus(
            tasks=self._count.tasks,
            most_tasks=self._settings.most_tasks,
            workers=self._pool.workers,
            most_workers=self._settings.scaling.most_workers,
            worker_seconds=self._pool.worker_seconds,
            graders=tuple(sorted(self._graders)),
        )

    def check_ready(self) -> None:
        """Raise `QueueUnavailable` unless tasks can be enqueued."""
        self._queue.ping()

    def close(self) -> None:
        self._pool.close()
        self._queue.close()

    def _outcomes(self, tasks: Sequence[ScoreTask]) -> list[TaskOutcome]:
        check(
            len(tasks) <= self._settings.most_tasks,
            f"a batch has {len(tasks)} tasks, and the service takes {self._settings.most_tasks}",
            fix="send them in several batches",
        )
        known = [task for task in tasks if task.data_source in self._graders]
        graded = iter(self._graded(known))
        outcomes = [
            next(graded) if task.data_source in self._graders else self._without_grader(task)
            for task in tasks
        ]
        for outcome in outcomes:
            self.metrics.ended(outcome)
        return outcomes

    def _graded(self, tasks: Sequence[ScoreTask]) -> list[TaskOutcome]:
        """What became of tasks for which there are graders."""
        try:
            self._count.enter(len(tasks))
        except Unavailable:
            self.metrics.refused(len(tasks))
            raise
        outcomes: list[TaskOutcome] = []
        try:
            ends_at = time.monotonic() + self._settings.answer_seconds
            pairs = [(self._graders[task.data_source], task) for task in tasks]
            seconds = self._settings.task_seconds, self._settings.answer_seconds
            jobs = self._queue.put(pairs, *seconds)
            self._pool.grow(self._count.tasks)
            for job in jobs:
                outcomes.append(self._outcome(job, ends_at))
                self._count.leave()
            return outcomes
        finally:
            self._count.leave(len(tasks) - len(outcomes))

    def _outcome(self, job: Job, ends_at: float) -> TaskOutcome:
        try:
            return self._queue.outcome(job, ends_at)
        except Unavailable as error:
            return failed(error)

    def _without_grader(self, task: ScoreTask) -> TaskOutcome:
        names = ", ".join(sorted(self._graders)) or "none is installed"
        problem = f"there is no grader for the data_source {task.data_source!r}"
        return failed(GraderFailed(problem, fix=f"it must be one of: {names}"))

    def _worker_ended(self, name: str, how: str) -> None:
        """Have its task tried again, and start another worker if there is work for one."""
        try:
            self._queue.worker_ended(name, how)
        except Unavailable as error:
            log.error("worker_not_forgotten", worker=name, reason=error.message)
        self._pool.grow(self._count.tasks)
