"""Datasets of a simulation: Prompts, and the reward and length of each of their trajectories."""

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from simulator.chance import normal, shuffled, uniforms


class Try(NamedTuple):
    """The key of one trajectory of a dataset."""

    row: int
    occurrence: int
    """Number of times that the row was fed before."""
    member: int
    tries: int
    """Number of times that the sampler had the member sampled anew. An attempt lost to
    infrastructure is repeated with the same key, so that the loss is the only difference."""


class Draw(NamedTuple):
    """Reward and length of a trajectory."""

    reward: float
    seconds: float
    """Time on its Slot."""


class SimulatedDataset(Protocol):
    rows: int
    """Number of rows in one epoch."""

    def prompt(self, number: int) -> tuple[int, int]:
        """(row, occurrence) of the Prompt fed after `number` others."""

    def draw(self, wanted: Try, weight_version: int) -> Draw:
        """Reward and length of the trajectory if it begins under these weights."""


def shuffled_prompt(seed: int, rows: int, number: int) -> tuple[int, int]:
    """(row, occurrence) of a Prompt, for a dataset that is shuffled anew in each epoch."""
    epoch, place = divmod(number, rows)
    return _epoch(seed, rows, epoch)[place], epoch


@lru_cache(maxsize=16)
def _epoch(seed: int, rows: int, epoch: int) -> tuple[int, ...]:
    return tuple(shuffled(rows, seed, "epoch", epoch))


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A software-engineering dataset as in published DAPO runs: hard, and long-tailed."""

    rows: int = 293
    never_solved: float = 0.45
    """Share of rows with pass rate 0."""
    always_solved: float = 0.05
    """Share of rows with pass rate 1."""
    alpha: float = 0.8
    beta: float = 1.6
    """Pass rates of the other rows are distributed as Beta(alpha, beta)."""
    mean_seconds: float = 540.0
    max_seconds: float = 1620.0
    shortest_seconds: float = 30.0
    spread_of_rows: float = 0.45
    """Standard deviation, between rows, of the logarithm of the length."""
    spread_of_members: float = 0.55
    """Standard deviation, within a row, of the logarithm of the length."""
    failed_longer: float = 0.25
    """Amount by which the logarithm of a failed trajectory's length is larger."""
    drift: float = 0.0
    """Standard deviation of the step of a pass rate's logit with each weight version."""


_WORLD = WorldSettings()


class World:
    """A synthetic dataset. Owns the pass rates, which drift as the policy learns."""

    def __init__(self, seed: int, settings: WorldSettings = _WORLD) -> None:
        self.rows = settings.rows
        self._seed = seed
        self._settings = settings
        variance = settings.spread_of_rows**2 + settings.spread_of_members**2
        # exp(variance / 2) is the mean of a log-normal variable; both terms keep `mean_seconds`.
        typically_failed = 0.7
        self._log_seconds = [
            math.log(settings.mean_seconds)
            - variance / 2
            - settings.failed_longer * typically_failed
            + settings.spread_of_rows * normal(uniforms(seed, "length", row)[0])
            for row in range(settings.rows)
        ]
        self._rates = [[self._first_rate(row) for row in range(settings.rows)]]

    def prompt(self, number: int) -> tuple[int, int]:
        return shuffled_prompt(self._seed, self.rows, number)

    def draw(self, wanted: Try, weight_version: int) -> Draw:
        world = self._settings
        passing, length = uniforms(self._seed, *wanted)
        solved = passing < self.pass_rate(wanted.row, weight_version)
        log_seconds = self._log_seconds[wanted.row] + world.spread_of_members * normal(length)
        seconds = math.exp(log_seconds if solved else log_seconds + world.failed_longer)
        within = min(world.max_seconds, max(world.shortest_seconds, seconds))
        return Draw(1.0 if solved else 0.0, within)

    def pass_rate(self, row: int, weight_version: int) -> float:
        if not self._settings.drift:
            return self._rates[0][row]
        while len(self._rates) <= weight_version:
            now = len(self._rates)
            self._rates.append([self._moved(r, p, now) for r, p in enumerate(self._rates[-1])])
        return self._rates[weight_version][row]

    def _first_rate(self, row: int) -> float:
        kind, _ = uniforms(self._seed, "kind", row)
        world = self._settings
        if kind < world.never_solved:
            return 0.0
        if kind < world.never_solved + world.always_solved:
            return 1.0
        return min(0.99, max(0.01, self._beta(row)))

    def _beta(self, row: int) -> float:
        """A draw from Beta(alpha, beta), by Johnk's rejection method."""
        for trial in range(1000):
            first, second = uniforms(self._seed, "rate", row, trial)
            x, y = first ** (1 / self._settings.alpha), second ** (1 / self._settings.beta)
            if x + y <= 1:
                return float(x / (x + y))
        return self._settings.alpha / (self._settings.alpha + self._settings.beta)

    def _moved(self, row: int, rate: float, weight_version: int) -> float:
        """The pass rate under the next weights. A row never solved may come within reach; one
        always solved stays so."""
        found, step = uniforms(self._seed, "drift", row, weight_version)
        if rate <= 0.0:
            return 0.05 if found < 0.02 else 0.0
        if rate >= 1.0:
            return rate
        logit = math.log(rate / (1 - rate)) + 0.05 + self._settings.drift * normal(step)
        return min(0.995, max(0.005, 1 / (1 + math.exp(-logit))))
