"""The least time a step can take, and what its trajectories look like without bias.

Both come from the very draws of the simulation: the dataset in feeding order, each Group run whole
under the first weights.
"""

import math
from collections.abc import Iterator

import msgspec

from orchestrator.sampling.criteria import is_effective
from rollyard.errors import PromptsExhausted
from rollyard.messages import RunSettings
from simulator.dataset import Dataset, Draw, Try
from simulator.plan import Plan

MAX_PROMPTS = 200_000


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Of a step with one Slot; with more it takes that share of it."""

    blind_seconds: float
    """Nobody can predict: every Group fed runs whole, and no Slot is ever idle."""
    oracle_seconds: float
    """Only Groups that turn out to be effective are ever begun."""
    lengths: tuple[float, ...]
    """Slot seconds of each trajectory of those, shortest first."""

    @property
    def mean_seconds(self) -> float:
        return math.fsum(self.lengths) / len(self.lengths)

    @property
    def long_seconds(self) -> float:
        """One in ten is longer."""
        return self.lengths[math.ceil(0.9 * len(self.lengths)) - 1]

    def long_share(self, lengths: list[float]) -> float:
        """Of other trajectories: 0.1 is without bias."""
        long = self.long_seconds
        return sum(length > long for length in lengths) / len(lengths)


def bounds(workload: Dataset, settings: RunSettings, plan: Plan) -> Bounds:
    """Of the steps after the warm-up."""
    size, steps = plan.requested_batch_size, plan.steps
    effective, work, useful = 0, 0.0, list[float]()
    for group in _groups(workload, settings):
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


def _groups(workload: Dataset, settings: RunSettings) -> Iterator[list[Draw]]:
    for number in range(MAX_PROMPTS):
        row, occurrence = workload.prompt(number)
        yield [
            workload.draw(Try(row, occurrence, member, 0), 0)
            for member in range(settings.group_size)
        ]
    raise PromptsExhausted(
        f"{MAX_PROMPTS} prompts did not make the batches",
        fix="see whether the workload has rows of which some trajectories are solved, others not",
    )
