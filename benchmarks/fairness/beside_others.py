"""One and the same thing without other Runs and beside them, in turns."""

from statistics import median

import msgspec


class BesideOthers(msgspec.Struct):
    """A figure of each round, lower is better."""

    alone: list[float] = []
    beside: list[float] = []

    @property
    def ratio(self) -> float:
        return median(self.beside) / median(self.alone)
