"""A Batch as numbers by name, for a tracker of experiments."""

from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rollyard.messages.batch import Batch


def metrics_of(batch: "Batch") -> dict[str, float]:
    """See `Batch.metrics`. Means of nothing are 0.0."""
    return _sampled(batch) | _cost(batch) | _so_far(batch)


def _sampled(batch: "Batch") -> dict[str, float]:
    results = [result for group in batch.groups for result in group.results]
    trajectories = [each.trajectory for each in results if each.trajectory is not None]
    sequences = [each.sequences for each in trajectories]
    rewards = [each.reward for each in results if each.reward is not None]
    ages = batch.report.bias.ages
    return {
        "batch/groups": len(batch.groups),
        "batch/trajectories": len(trajectories),
        "batch/reward": _mean(rewards),
        "batch/sampled_tokens": _mean([sum(sum(s.loss_mask) for s in each) for each in sequences]),
        "batch/turns": _mean([sum(len(s.turns) for s in each) for each in sequences]),
        "batch/truncated": _mean([each.truncated for each in trajectories]),
        "batch/weight_version": batch.report.weight_version,
        "batch/staleness": sum(a * n for a, n in ages.items()) / max(1, sum(ages.values())),
        "batch/staleness_max": max(ages, default=0),
    }


def _cost(batch: "Batch") -> dict[str, float]:
    report, bias = batch.report, batch.report.bias
    spent = msgspec.structs.asdict(report.slot_seconds)
    return {
        "cost/seconds": report.seconds,
        "cost/slots": report.slots,
        **{f"cost/slot_seconds_{use}": seconds for use, seconds in spent.items()},
        "bias/mean_ratio": bias.mean_ratio,
        "bias/long_share": bias.long_share,
        "bias/started_long_share": bias.started_long_share,
    }


def _so_far(batch: "Batch") -> dict[str, float]:
    counters = batch.counters
    counted = msgspec.structs.asdict(counters)
    numbers = {f"run/{name}": n for name, n in counted.items() if isinstance(n, int)}
    return {"run/reward": counters.rewards_sum / max(1, counters.jobs_accepted), **numbers}


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0
