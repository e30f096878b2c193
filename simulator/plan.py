"""Settings of a simulation: its Slots, its trainer, and its failures."""

import msgspec

from rollyard.messages import check
from rollyard.messages.base import check_least
from simulator.trouble import NO_TROUBLE, Trouble


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    slots: int
    requested_batch_size: int = 32
    steps: int = 24
    warm_up: int = 8
    """Number of first steps, in which the pipeline fills, that are not reported."""
    train_seconds: float = 0.0
    """Time from a Batch to the weights that it leads to."""
    ahead: int = 1
    """Maximum number of Batches requested and not acknowledged."""
    trouble: Trouble = NO_TROUBLE

    def __post_init__(self) -> None:
        for name in ("slots", "requested_batch_size", "steps", "ahead"):
            check_least(getattr(self, name), 1, name)
        check(
            0 <= self.warm_up < self.steps,
            f"of {self.steps} steps, {self.warm_up} cannot be warm-up",
            fix="simulate more steps, or warm up for fewer",
        )
