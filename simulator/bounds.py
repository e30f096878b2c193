"""Lower bounds on the time of a step, and the unbiased distribution of its trajectory lengths.

Both come from the draws of the simulation itself: the dataset in feeding order, each Group sampled
whole under the first weights.
"""

import math
from collections.abc import Iterator

import msgspec

from orchestrator.sampling.criteria import is_effective
from rollyard.errors import PromptsExhausted
from rollyard.messages import RunSettings
from simulator.dataset import Draw, SimulatedDataset, Try
from simulator.plan import Plan

MAX_PROMPTS = 200_000


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in Slot seconds per step: divided by the number of Slots they are seconds."""

    blind_seconds: float
    """Bound for samplers that cannot predict: every Group fed runs whole, and no Slot is idle."""
    oracle_seconds: float
    """Bound for perfect prediction: only Groups that turn out to be effective are begun."""
    lengths: tuple[float, ...]
    """Slot seconds of each trajectory of the effective Groups, shortest first."""

    @property
    def mean_seconds(self) -> float:
        return math.fsum(self.lengths) / len(self.lengths)

    @property
    def long_seconds(self) -> float:
        """The 90th percentile of `lengths`."""
        return self.lengths[math.ceil(0.9 * len(self.lengths)) - 1]

    def long_share(self, lengths: list[float]) -> float:
        """Share of other trajectories beyond `long_seconds`: 0.1 is unbiased."""
        long = self.long_seconds
        return sum(length > long for length in lengths) / len(lengths)


def bounds(dataset: SimulatedDataset, settings: RunSettings, plan: Plan) -> Bounds:
    """The bounds on the steps after the warm-up. Raises `PromptsExhausted` if the dataset hardly
    has effective Groups."""
    size, steps = plan.requested_batch_size, plan.steps
    effective, work, useful = 0, 0.0, list[float]()
    for group in _groups(dataset, settings):
        measured = effective >= plan.warm_up * size
        seconds = [draw.seconds for draw in group]
        work += math.fsum(seconds) if measured else 0.0
        if is_effective(settings, [draw.reward for draw in group]):
            effective += 1
            useful += seconds
        if effective == steps * size:
            break
    return Bounds(
        blind_seconds=work / (steps - plan.warm_up),
        oracle_seconds=math.fsum(useful) / steps,
        lengths=tuple(sorted(useful)),
    )


def _groups(dataset: SimulatedDataset, settings: RunSettings) -> Iterator[list[Draw]]:
    for number in range(MAX_PROMPTS):
        row, occurrence = dataset.prompt(number)
        yield [
            dataset.draw(Try(row, occurrence, member, 0), 0)
            for member in range(settings.group_size)
        ]
    raise PromptsExhausted(
        f"{MAX_PROMPTS} prompts did not make the batches",
        fix="see whether the dataset has rows of which some trajectories are solved, others not",
    )
