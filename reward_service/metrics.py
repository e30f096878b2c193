"""Prometheus metrics of the reward service: tasks by outcome, waiting ones, and workers."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from reward_service.messages import RewardServiceStatus
from reward_service.outcome import TaskOutcome
from rollyard.errors import GraderFailed

_GRADED, _FAILED, _UNAVAILABLE = "graded", "failed", "unavailable"


class RewardMetrics:
    def __init__(self, status: Callable[[], RewardServiceStatus]) -> None:
        self._registry = CollectorRegistry()
        self._tasks = Counter(
            "rollyard_reward_tasks", "Tasks that ended", ["outcome"], registry=self._registry
        )
        self._refused = Counter(
            "rollyard_reward_tasks_refused",
            "Tasks that were told to come later",
            registry=self._registry,
        )
        for outcome in (_GRADED, _FAILED, _UNAVAILABLE):
            self._tasks.labels(outcome=outcome)
        self._watch("tasks_unfinished", "Tasks that wait or run", lambda: status().tasks)
        self._watch("workers", "Workers", lambda: status().workers)
        self._watch("worker_seconds", "Lifetimes of workers", lambda: status().worker_seconds)

    def ended(self, outcome: TaskOutcome) -> None:
        if outcome.failure is None:
            kind = _GRADED
        else:
            refused = outcome.failure.code == GraderFailed.__name__
            kind = _FAILED if refused else _UNAVAILABLE
        self._tasks.labels(outcome=kind).inc()

    def refused(self, tasks: int) -> None:
        self._refused.inc(tasks)

    def text(self) -> str:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry).decode()

    def _watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        gauge = Gauge(f"rollyard_reward_{name}", description, registry=self._registry)
        gauge.set_function(value)
