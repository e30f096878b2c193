"""Prometheus metrics of one agent server: jobs by outcome, seconds by stage, and gauges."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rollyard.messages import Outcome

_STAGE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics:
    def __init__(self) -> None:
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
        for outcome in Outcome:
            self._jobs.labels(outcome=outcome.value)

    def watch(self, name: str, description: str, value: Callable[[], int]) -> None:
        """Add a gauge, whose value is asked for at every scrape."""
        Gauge(name, description, registry=self._registry).set_function(value)

    def ended(self, outcome: Outcome) -> None:
        self._jobs.labels(outcome=outcome.value).inc()

    def staged(self, stage: str, seconds: float) -> None:
        self._stages.labels(stage=stage).observe(seconds)

    def text(self) -> str:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry).decode()
