"""The history of a training run: one record for each step, and the summary that judges it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from rollyard import reporting
from rollyard.messages import Batch, BatchReport, Counters, SlotSeconds

MAX_LOGPROB_GAP = 1e-3
"""Trainer and LLM servers compute in float32, which agrees to about 1e-5; wrong weights do not."""
MAX_PASS_RATE_BEFORE = 0.65
MIN_PASS_RATE_AFTER = 0.90
LEARNED_REWARD = 0.95
LEARNED_STEPS = 2


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Unix seconds at which the parts of a step began."""

    rollout_started_at: float
    training_started_at: float
    weights_started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A trajectory for people to read."""

    job_id: str
    reward: float
    messages: tuple[tuple[str, str], ...]
    """Pairs of a role and its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One training step. Counts are of this step alone."""

    step: int
    reward: float
    """Mean over all jobs accepted in this step, also those of filtered groups."""
    groups_in_batch: int
    groups_filtered: int
    jobs_accepted: int
    jobs_cancelled: int
    jobs_carried_over: int
    members_restarted: int
    report: BatchReport
    """Cost and length bias of the batch."""
    loss: float
    logprob_gap: float
    rollout_started_at: float
    training_started_at: float
    weights_started_at: float
    ended_at: float
    samples: tuple[Sample, ...] = ()
    """The best and the worst trajectory of the batch's first group."""

    @property
    def filtered_share(self) -> float:
        complete = self.groups_in_batch + self.groups_filtered
        return self.groups_filtered / complete if complete else 0.0

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.to_builtins(asdict(self), str_keys=True)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole run in one line. It is `ok` only if the policy learned and no logprobs
    disagreed."""

    ok: bool
    pass_rate_before: float
    pass_rate_after: float
    steps: int
    requested_batch_size: int
    groups_kept: int
    groups_filtered: int
    jobs_accepted: int
    jobs_cancelled: int
    jobs_carried_over: int
    members_restarted: int
    """Members sampled anew because their tokens were too old."""
    oldest_age: int
    """Largest staleness, in weight versions, of a trajectory trained on."""
    long_share: float
    """Share of long trajectories among those trained on; without bias it is
    `started_long_share`."""
    started_long_share: float
    mean_length_ratio: float
    """Mean length of the trajectories trained on, over that of all started; 1.0 is without bias."""
    slot_time: dict[str, float]
    """Fate -> share of the slots' time."""
    max_logprob_gap: float
    train_seconds: float
    total_seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def record(
    batch: Batch, before: Counters, times: StepTimes, *, loss: float, logprob_gap: float, step: int
) -> StepRecord:
    """The record of the step that trained on `batch`; `before` are the last step's counters."""
    now = batch.counters
    accepted = now.jobs_accepted - before.jobs_accepted
    return StepRecord(
        step=step,
        reward=(now.rewards_sum - before.rewards_sum) / accepted if accepted else 0.0,
        groups_in_batch=len(batch.groups),
        groups_filtered=now.groups_filtered - before.groups_filtered,
        jobs_accepted=accepted,
        jobs_cancelled=now.attempts_stopped - before.attempts_stopped,
        jobs_carried_over=now.jobs_carried_over - before.jobs_carried_over,
        members_restarted=now.members_restarted - before.members_restarted,
        report=batch.report,
        loss=loss,
        logprob_gap=logprob_gap,
        **asdict(times),
        samples=samples_of(batch),
    )


def samples_of(batch: Batch) -> tuple[Sample, ...]:
    """The best and the worst trajectory of the first group; that they differ, brought it here."""
    results = sorted(batch.groups[0].results, key=lambda result: -(result.reward or 0.0))
    return tuple(
        Sample(
            job_id=result.lease.job_id,
            reward=result.reward or 0.0,
            messages=tuple((said.role, said.content) for said in result.trajectory.messages),
        )
        for result in (results[0], results[-1])
        if result.trajectory is not None
    )


def learned(steps: Sequence[StepRecord]) -> bool:
    """Whether the last steps in a row all earned enough."""
    last = steps[-LEARNED_STEPS:]
    return len(last) == LEARNED_STEPS and all(step.reward >= LEARNED_REWARD for step in last)


def summarize(
    steps: Sequence[StepRecord],
    *,
    pass_rate_before: float,
    pass_rate_after: float,
    requested_batch_size: int,
    total_seconds: float,
) -> Summary:
    gap = max((step.logprob_gap for step in steps), default=0.0)
    ok = (
        learned(steps)
        and pass_rate_before <= MAX_PASS_RATE_BEFORE
        and pass_rate_after >= MIN_PASS_RATE_AFTER
        and all(step.groups_in_batch == requested_batch_size for step in steps)
        and gap <= MAX_LOGPROB_GAP
    )
    return Summary(
        ok=ok,
        pass_rate_before=pass_rate_before,
        pass_rate_after=pass_rate_after,
        steps=len(steps),
        requested_batch_size=requested_batch_size,
        groups_kept=sum(step.groups_in_batch for step in steps),
        groups_filtered=sum(step.groups_filtered for step in steps),
        jobs_accepted=sum(step.jobs_accepted for step in steps),
        jobs_cancelled=sum(step.jobs_cancelled for step in steps),
        jobs_carried_over=sum(step.jobs_carried_over for step in steps),
        members_restarted=sum(step.members_restarted for step in steps),
        **_bias_and_waste([step.report for step in steps]),
        max_logprob_gap=gap,
        train_seconds=round(steps[-1].ended_at - steps[0].rollout_started_at, 3) if steps else 0.0,
        total_seconds=round(total_seconds, 3),
    )


def _bias_and_waste(reports: Sequence[BatchReport]) -> dict[str, Any]:
    """The mean over all steps, in which each trajectory counts the same."""
    biases = [report.bias for report in reports]
    trajectories = max(1, sum(each.trajectories for each in biases))

    def mean(values: Sequence[float]) -> float:
        weighted = zip(values, biases, strict=True)
        return round(sum(value * each.trajectories for value, each in weighted) / trajectories, 4)

    spent = [msgspec.structs.asdict(report.slot_seconds) for report in reports]
    together = {fate: sum(each[fate] for each in spent) for fate in reporting.FATES}
    shares = reporting.shares(SlotSeconds(**together))
    return {
        "oldest_age": max((age for each in biases for age in each.ages), default=0),
        "long_share": mean([each.long_share for each in biases]),
        "started_long_share": mean([each.started_long_share for each in biases]),
        "mean_length_ratio": mean([each.mean_ratio for each in biases]),
        "slot_time": {fate: round(share, 4) for fate, share in shares.items()},
    }
