"""Outcome of a simulated training run, step by step."""

import math
from collections import Counter

import msgspec

from rollyard.messages import Bias, SlotSeconds


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: from the completion of one Batch to that of the next."""

    seconds: float
    slot_seconds: SlotSeconds
    available: float
    """Slot seconds available: Slots times seconds, without the Slots of a lost server."""
    bias: Bias
    """Length bias as production reports it."""
    lengths: tuple[float, ...]
    """Slot seconds of each trajectory in the Batch."""
    prompts: int
    """Prompts fed during the step."""


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    slots: int
    steps: tuple[TrainingStep, ...]
    """The steps after the warm-up."""
    groups_lost: int
    """Groups dropped because of infrastructure failures."""
    lost_seconds: float
    """Slot time of attempts that ended by an infrastructure failure, in the whole run."""

    @property
    def step_seconds(self) -> float:
        """Mean time of a step."""
        return math.fsum(step.seconds for step in self.steps) / len(self.steps)

    @property
    def lengths(self) -> list[float]:
        return [length for step in self.steps for length in step.lengths]

    @property
    def ages(self) -> Counter[int]:
        """Staleness, in weight versions, -> number of trajectories."""
        ages: Counter[int] = Counter()
        for step in self.steps:
            ages.update(step.bias.ages)
        return ages

    def share(self, fate: str) -> float:
        """Share of the available Slot time that `fate`, a field of `SlotSeconds`, took."""
        spent = math.fsum(getattr(step.slot_seconds, fate) for step in self.steps)
        return spent / math.fsum(step.available for step in self.steps)
