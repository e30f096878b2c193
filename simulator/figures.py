"""Figures of a simulated training run, relative to its bounds."""

import math

import msgspec

from simulator.bounds import Bounds
from simulator.outcome import TrainingOutcome


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Averages over the steps after the warm-up."""

    policy: str
    slots: int
    seconds_per_step: float
    over_blind: float
    over_oracle: float
    """Time of a step as a multiple of each bound. The bounds are those of the first weights, also
    where pass rates drift."""
    useful: float
    filtered: float
    cancelled: float
    failed: float
    idle: float
    """Shares of the Slot time, as are the four above."""
    long_share: float
    mean_ratio: float
    """Length of the trajectories in Batches against all of effective Groups: 0.1 and 1.0 are
    unbiased."""
    reported_long_share: float
    reported_started_long_share: float
    reported_mean_ratio: float
    """Means of the Batches' own reports, which compare with all trajectories started, effective or
    not."""
    older: float
    """Share of trajectories that were begun under earlier weights."""
    oldest: int
    """Largest staleness of a trajectory, in weight versions."""
    prompts_per_batch: float
    """Prompts fed per Batch."""


def figures(outcome: TrainingOutcome, reference: Bounds) -> Figures:
    lengths, ages = outcome.lengths, outcome.ages
    reports = [step.bias for step in outcome.steps]
    slot_seconds = outcome.step_seconds * outcome.slots
    return Figures(
        policy=outcome.policy,
        slots=outcome.slots,
        seconds_per_step=outcome.step_seconds,
        over_blind=slot_seconds / reference.blind_seconds,
        over_oracle=slot_seconds / reference.oracle_seconds,
        useful=outcome.share("useful"),
        filtered=outcome.share("filtered"),
        cancelled=outcome.share("cancelled"),
        failed=outcome.share("failed"),
        idle=max(0.0, outcome.share("idle")),
        long_share=reference.long_share(lengths),
        mean_ratio=math.fsum(lengths) / len(lengths) / reference.mean_seconds,
        reported_long_share=_mean([report.long_share for report in reports]),
        reported_started_long_share=_mean([report.started_long_share for report in reports]),
        reported_mean_ratio=_mean([report.mean_ratio for report in reports]),
        older=1 - ages[0] / ages.total(),
        oldest=max(ages),
        prompts_per_batch=_mean([float(step.prompts) for step in outcome.steps]),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
