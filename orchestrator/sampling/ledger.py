"""What Batches cost and whom they prefer.

- Slot time is booked once, where its fate is decided, and counted from one Batch to the next.
- Lengths are Slot seconds, in bins a twelfth apart. Attempts that were stopped would have been
  longer than they were: they count by the estimate of Kaplan and Meier (J. Am. Stat. Assoc. 53,
  1958), without which a sampler that stops the long ones would look as if there were none.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from rollyard.messages import Bias, SlotSeconds

_BINS_A_DOUBLING = 8
_LEAST_SECONDS, _MAX_SECONDS = 1e-3, 1e9
_KEPT = 0.9
"""Of what was seen before each Batch: policies grow longer and shorter."""
_LONG = 0.1
"""The share of all started that is called long."""


class Bin(msgspec.Struct, array_like=True):
    """Trajectories of about one length."""

    finished: float = 0.0
    stopped: float = 0.0
    seconds: float = 0.0
    """Of the finished ones together."""


class Ledger(msgspec.Struct, kw_only=True):
    """Since the last Batch was complete; lengths since ever, ever less."""

    filtered: float = 0.0
    cancelled: float = 0.0
    failed: float = 0.0
    bins: dict[int, Bin] = {}

    def finished(self, seconds: float) -> None:
        """A trajectory came to its end."""
        each = self.bins.setdefault(_bin_of(seconds), Bin())
        each.finished += 1
        each.seconds += seconds

    def stopped(self, seconds: float) -> None:
        """A trajectory was stopped on its way."""
        self.cancelled += seconds
        self.bins.setdefault(_bin_of(seconds), Bin()).stopped += 1

    def close(self, *, useful: float, surplus: float) -> SlotSeconds:
        """The account of a Batch; the next one begins."""
        account = SlotSeconds(
            useful=useful,
            filtered=self.filtered,
            surplus=surplus,
            cancelled=self.cancelled,
            failed=self.failed,
        )
        self.filtered = self.cancelled = self.failed = 0.0
        for each in self.bins.values():
            each.finished *= _KEPT
            each.stopped *= _KEPT
            each.seconds *= _KEPT
        return account

    def bias(self, seconds: Iterable[float], ages: Mapping[int, int]) -> Bias:
        """Of a Batch whose trajectories took so many seconds and are so many versions old."""
        lengths = list(seconds)
        mean, long_bin, started_long_share = self._started()
        return Bias(
            trajectories=len(lengths),
            mean_seconds=sum(lengths) / len(lengths) if lengths else 0.0,
            started_mean_seconds=mean,
            long_seconds=_upper_edge(long_bin),
            long_share=sum(_bin_of(length) > long_bin for length in lengths) / max(1, len(lengths)),
            started_long_share=started_long_share,
            ages=dict(sorted(ages.items())),
        )

    def _started(self) -> tuple[float, int, float]:
        """Of all started: the mean, the last bin that is not long, and the share beyond it."""
        at_risk = sum(each.finished + each.stopped for each in self.bins.values())
        alive, mean, long_bin, long_share = 1.0, 0.0, 0, 1.0
        for index in sorted(self.bins):
            each = self.bins[index]
            if each.finished:
                dying = alive * each.finished / at_risk
                mean += dying * each.seconds / each.finished
                alive -= dying
            at_risk -= each.finished + each.stopped
            if abs(alive - _LONG) < abs(long_share - _LONG):
                long_bin, long_share = index, alive
        if self.bins:  # the longest were stopped: they are at least as long as the last bin
            mean += alive * _upper_edge(max(self.bins))
        return mean, long_bin, long_share


def _bin_of(seconds: float) -> int:
    within = min(max(seconds, _LEAST_SECONDS), _MAX_SECONDS)
    return math.ceil(math.log2(within / _LEAST_SECONDS) * _BINS_A_DOUBLING)


def _upper_edge(index: int) -> float:
    return float(_LEAST_SECONDS * 2 ** (index / _BINS_A_DOUBLING))
