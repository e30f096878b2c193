"""Shares of the Slots, by which Runs that wait at the same time get them."""

import math
from typing import Annotated

import msgspec

from rollyard.messages.base import Count, Message, check

MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e6


class Share(Message, frozen=True):
    """What a Run may have of the Slots while other Runs wait for them, as an operator says."""

    weight: Annotated[float, msgspec.Meta(ge=MIN_WEIGHT, le=MAX_WEIGHT)] = 1.0
    """Slots of this Run for one of a Run of weight 1."""
    max_slots: Count | None = None
    """Number of Slots that it may hold at most, also while nobody else waits; with 0 it pauses as
    soon as what it runs has ended, and None sets no limit."""

    def __post_init__(self) -> None:
        check(
            math.isfinite(self.weight) and MIN_WEIGHT <= self.weight <= MAX_WEIGHT,
            f"weight must be from {MIN_WEIGHT} to {MAX_WEIGHT:.0f}, got {self.weight}",
            fix="give a run that should get twice as many slots twice the weight; to pause one, "
            "let it hold 0 slots",
        )
        check(
            self.max_slots is None or self.max_slots >= 0,
            f"max_slots must not be negative, got {self.max_slots}",
        )
