"""Prometheus metrics of the orchestrator, computed from its status at each scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from rollyard.messages import FleetStatus

Family = GaugeMetricFamily | CounterMetricFamily

JOB_STATES = (
    *("submitted", "queued", "unoffered", "leased", "parked", "accepted", "dead", "dropped"),
)
"""States of Jobs; those that no server can run count as queued, too, and parked ones as leased."""
GROUP_FATES = ("kept", "filtered", "dead", "cancelled", "skipped", "cut_short", "discarded")
MEMBER_FATES = ("restarted", "redundant")
SLOT_FATES = ("useful", "filtered", "cancelled", "failed", "idle")
"""Fates of Slot time. Surplus is none of them: it becomes useful with a later Batch."""


class _StatusCollector(Collector):
    def __init__(self, status: FleetStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("rollyard_jobs", "Jobs of a run by state", labels=["run", "state"])
        groups = GaugeMetricFamily(
            "rollyard_groups", "Groups of a run by fate", labels=["run", "fate"]
        )
        members = CounterMetricFamily(
            "rollyard_members",
            "Members of groups begun again for their age, or redundant",
            labels=["run", "fate"],
        )
        refused = CounterMetricFamily(
            "rollyard_results_refused",
            "Results that came after their attempt had lost its lease",
            labels=["run"],
        )
        for run in self._status.runs:
            refused.add_metric([run.run_id], run.counters.results_refused)
        yield self._counted(jobs, "jobs", JOB_STATES)
        yield self._counted(groups, "groups", GROUP_FATES)
        yield self._counted(members, "members", MEMBER_FATES)
        yield refused
        yield self._slots()
        yield self._reclaims()
        yield self._slot_seconds()
        yield from self._last_batches()

    def _counted(self, family: Family, what: str, fates: Iterable[str]) -> Metric:
        """The family with the counters of all Runs whose names are `what` and one of `fates`."""
        for run in self._status.runs:
            for fate in fates:
                family.add_metric([run.run_id, fate], getattr(run.counters, f"{what}_{fate}"))
        return family

    def _slots(self) -> Metric:
        slots = GaugeMetricFamily(
            "rollyard_slots", "Slots of an agent server by state", labels=["server", "state"]
        )
        for server in self._status.servers:
            slots.add_metric([server.server_id, "busy"], server.busy_slots)
            slots.add_metric([server.server_id, "all"], server.slots)
        return slots

    def _slot_seconds(self) -> Metric:
        seconds = CounterMetricFamily(
            "rollyard_slot_seconds",
            "Where the time of the slots went, decided with each batch of a run",
            labels=["run", "fate"],
        )
        for run in self._status.runs:
            spent = run.counters.slot_seconds
            for fate in SLOT_FATES:
                seconds.add_metric([run.run_id, fate], getattr(spent, fate))
        return seconds

    def _last_batches(self) -> Iterator[Metric]:
        """Length bias and ages of the last Batch of each Run."""
        ratio = GaugeMetricFamily(
            "rollyard_batch_mean_length_ratio",
            "Mean length of the last batch's trajectories to that of all started; 1 is unbiased",
            labels=["run"],
        )
        long = GaugeMetricFamily(
            "rollyard_batch_long_share",
            "Share of long trajectories, in the last batch and among all started",
            labels=["run", "of"],
        )
        ages = GaugeMetricFamily(
            "rollyard_batch_trajectories",
            "Trajectories of the last batch by age in weight versions",
            labels=["run", "age"],
        )
        for run in self._status.runs:
            if run.last_report is not None:
                bias = run.last_report.bias
                ratio.add_metric([run.run_id], bias.mean_ratio)
                long.add_metric([run.run_id, "batch"], bias.long_share)
                long.add_metric([run.run_id, "started"], bias.started_long_share)
                for age, trajectories in bias.ages.items():
                    ages.add_metric([run.run_id, str(age)], trajectories)
        yield from (ratio, long, ages)

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


def render_metrics(status: FleetStatus) -> str:
    return generate_latest(_StatusCollector(status)).decode()
