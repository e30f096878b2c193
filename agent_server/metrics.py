"""What Prometheus may know: jobs by outcome, seconds by stage, busy slots."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rollyard.messages import Outcome

_STAGE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics:
    def __init__(self, slots: int) -> None:
        self._registry = CollectorRegistry()
        self._jobs = Counter(
            "rollyard_agent_jobs", "Attempts that ended", ["outcome"], registry=self._registry
        )
        self._stages = Histogram(
            "rollyard_agent_stage_seconds",
            "Time an attempt spent in a stage",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=self._registry,
        )
        self._busy = Gauge("rollyard_agent_slots_busy", "Slots in use", registry=self._registry)
        self._parked = Gauge(
            "rollyard_agent_jobs_parked", "Jobs that stand still", registry=self._registry
        )
        self._lost = Gauge(
            "rollyard_agent_slots_lost",
            "Slots held by attempts that ignore their end",
            registry=self._registry,
        )
        self._environments_left = Gauge(
            "rollyard_agent_environments_left",
            "Processes of environments that were killed and have not ended",
            registry=self._registry,
        )
        self._workspaces_left = Gauge(
            "rollyard_agent_workspaces_left",
            "Workspaces of ended jobs that could not be removed so far",
            registry=self._registry,
        )
        Gauge("rollyard_agent_slots", "Slots", registry=self._registry).set(slots)
        for outcome in Outcome:
            self._jobs.labels(outcome=outcome.value)

    def ended(self, outcome: Outcome) -> None:
        self._jobs.labels(outcome=outcome.value).inc()

    def staged(self, stage: str, seconds: float) -> None:
        self._stages.labels(stage=stage).observe(seconds)

    def watch(
        self,
        *,
        busy: Callable[[], int],
        parked: Callable[[], int],
        lost: Callable[[], int],
    ) -> None:
        """Ask these whenever somebody looks."""
        self._busy.set_function(lambda: float(busy()))
        self._parked.set_function(lambda: float(parked()))
        self._lost.set_function(lambda: float(lost()))

    def watch_leftovers(
        self, *, workspaces: Callable[[], int], environments: Callable[[], int]
    ) -> None:
        """Ask these whenever somebody looks."""
        self._workspaces_left.set_function(lambda: float(workspaces()))
        self._environments_left.set_function(lambda: float(environments()))

    def text(self) -> str:
        return generate_latest(self._registry).decode()
