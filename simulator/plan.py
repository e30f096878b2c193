"""What is simulated: how many Slots, and how its trainer goes about it."""

import msgspec

from rollyard.messages import check
from simulator.trouble import NO_TROUBLE, Trouble


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    slots: int
    requested_batch_size: int = 32
    steps: int = 24
    warm_up: int = 8
    """The first of the steps, in which the pipeline fills: they are not reported."""
    train_seconds: float = 0.0
    ahead: int = 1
    """Batches requested and not acknowledged, at most."""
    trouble: Trouble = NO_TROUBLE

    def __post_init__(self) -> None:
        for name in ("slots", "requested_batch_size", "steps", "ahead"):
            value = getattr(self, name)
            check(value >= 1, f"{name} must be at least 1, got {value}")
        check(
            0 <= self.warm_up < self.steps,
            f"of {self.steps} steps, {self.warm_up} cannot be warm-up",
            fix="simulate more steps, or warm up for fewer",
        )
