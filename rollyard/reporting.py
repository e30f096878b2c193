"""A Batch's report as text, the same wherever it is shown."""

import msgspec

from rollyard.messages import BatchReport, SlotSeconds

FATES: tuple[str, ...] = SlotSeconds.__struct_fields__
"""Uses of Slot time: the fields of `SlotSeconds`."""


def shares(spent: SlotSeconds) -> dict[str, float]:
    """Fate -> share of all Slot time; all are 0.0 if none was spent."""
    seconds: dict[str, float] = msgspec.structs.asdict(spent)
    total = sum(seconds.values())
    return {fate: value / total if total else 0.0 for fate, value in seconds.items()}


def waste(report: BatchReport) -> str:
    """Slot time by use, the largest share first: "useful 71%, filtered 29%"."""
    parts = sorted(shares(report.slot_seconds).items(), key=lambda part: -part[1])
    return ", ".join(f"{fate} {share:.0%}" for fate, share in parts if share >= 0.005) or "-"


def bias(report: BatchReport) -> str:
    """Length bias of the Batch: "long 9% of 10%, mean 1.01 x"."""
    seen = report.bias
    if not seen.started_mean_seconds:
        return "-"
    return (
        f"long {seen.long_share:.0%} of {seen.started_long_share:.0%}, mean {seen.mean_ratio:.2f} x"
    )


def ages(report: BatchReport) -> str:
    """Trajectories by their age in weight versions: "0: 120, 1: 8"."""
    return ", ".join(f"{age}: {count}" for age, count in sorted(report.bias.ages.items())) or "-"
