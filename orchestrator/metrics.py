"""Prometheus metrics of the orchestrator, computed from its status when asked."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from rollyard.messages import YardStatus


class _StatusCollector(Collector):
    def __init__(self, status: YardStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("rollyard_jobs", "Jobs of a run by state", labels=["run", "state"])
        groups = GaugeMetricFamily(
            "rollyard_groups", "Groups of a run by fate", labels=["run", "fate"]
        )
        refused = CounterMetricFamily(
            "rollyard_results_refused",
            "Results that came after their attempt had lost its lease",
            labels=["run"],
        )
        for run in self._status.runs:
            counters = run.counters
            for state in ("submitted", "queued", "leased", "accepted", "dead", "dropped"):
                jobs.add_metric([run.run_id, state], getattr(counters, f"jobs_{state}"))
            refused.add_metric([run.run_id], counters.results_refused)
            for fate in ("kept", "filtered", "dead", "cancelled"):
                groups.add_metric([run.run_id, fate], getattr(counters, f"groups_{fate}"))
        yield jobs
        yield groups
        yield refused
        slots = GaugeMetricFamily(
            "rollyard_slots", "Slots of an agent server by state", labels=["server", "state"]
        )
        for server in self._status.servers:
            slots.add_metric([server.server_id, "busy"], server.busy_slots)
            slots.add_metric([server.server_id, "all"], server.slots)
        yield slots
        yield self._reclaims()

    def _reclaims(self) -> Metric:
        reclaims = SummaryMetricFamily(
            "rollyard_reclaim_seconds",
            "From the decision to stop an attempt until its slot was free",
            labels=["server"],
        )
        for server in self._status.servers:
            condition = server.condition
            reclaims.add_metric(
                [server.server_id],
                count_value=condition.reclaims,
                sum_value=condition.reclaim_seconds,
            )
        return reclaims


def render_metrics(status: YardStatus) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry).decode()
