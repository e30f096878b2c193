"""What a simulated training run came to."""

import math
from collections import Counter

import msgspec

from rollyard.messages import Bias, SlotSeconds


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """From one Batch to the next."""

    seconds: float
    slot_seconds: SlotSeconds
    available: float
    """Slots times seconds; fewer while a server is lost."""
    bias: Bias
    """As production reports it."""
    lengths: tuple[float, ...]
    """Slot seconds of each trajectory in the Batch."""
    prompts: int
    """Fed meanwhile."""


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    slots: int
    steps: tuple[TrainingStep, ...]
    """Those after the warm-up."""
    groups_lost: int
    """Dropped for an infrastructure failure."""
    lost_seconds: float
    """Slot time of attempts that ended by an infrastructure failure, in the whole run."""

    @property
    def step_seconds(self) -> float:
        """The mean."""
        return math.fsum(step.seconds for step in self.steps) / len(self.steps)

    @property
    def lengths(self) -> list[float]:
        return [length for step in self.steps for length in step.lengths]

    @property
    def ages(self) -> Counter[int]:
        """Weight versions behind -> trajectories."""
        ages: Counter[int] = Counter()
        for step in self.steps:
            ages.update(step.bias.ages)
        return ages

    def share(self, fate: str) -> float:
        """Of the Slot time there was."""
        spent = math.fsum(getattr(step.slot_seconds, fate) for step in self.steps)
        return spent / math.fsum(step.available for step in self.steps)
