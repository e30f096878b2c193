"""Cost and length bias of Batches.

- Slot time is booked once, when its fate is decided, and summed from one Batch to the next.
- Lengths are Slot seconds, in logarithmic bins, eight to a doubling. Stopped attempts are
  censored: they would have been longer. The Kaplan-Meier estimate (J. Am. Stat. Assoc. 53, 1958)
  accounts for it; without it, a sampler that stops long trajectories would look as if there were
  none.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from rollyard.messages import Bias, SlotSeconds

_BINS_A_DOUBLING = 8
_MIN_SECONDS, _MAX_SECONDS = 1e-3, 1e9
_KEPT = 0.9
"""Weight that observed lengths keep with each Batch, as the policy's responses grow or shrink."""
_LONG = 0.1
"""Share of the trajectories started that counts as long."""


class Bin(msgspec.Struct, array_like=True):
    """Trajectories of about one length; counts are fractional, since they decay."""

    finished: float = 0.0
    stopped: float = 0.0
    seconds: float = 0.0
    """Sum of the lengths of the finished ones."""


class Ledger(msgspec.Struct, kw_only=True):
    """Slot seconds by fate since the last Batch, and the decaying histogram of lengths."""

    filtered: float = 0.0
    cancelled: float = 0.0
    failed: float = 0.0
    bins: dict[int, Bin] = {}
    """Index of the bin (`_bin_of`) -> its trajectories."""

    def finished(self, seconds: float) -> None:
        """Record the length of a trajectory that ended by itself."""
        each = self.bins.setdefault(_bin_of(seconds), Bin())
        each.finished += 1
        each.seconds += seconds

    def stopped(self, seconds: float) -> None:
        """Book the time of a stopped attempt, and record its length as censored."""
        self.cancelled += seconds
        self.bins.setdefault(_bin_of(seconds), Bin()).stopped += 1

    def close(self, *, useful: float, surplus: float) -> SlotSeconds:
        """The Slot time of a Batch; the sums of the next one begin at zero."""
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
        """Length bias of a Batch whose trajectories took `seconds`, with `ages` as in `Bias`."""
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
        """Kaplan-Meier estimate over all trajectories started: their mean length, the last bin
        that is not long, and the share of trajectories beyond it."""
        # `alive` is the survival function; `dying` is the probability mass of one bin.
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
    # Rounded up: bin `index` has the lengths up to `_upper_edge(index)`, the edge included.
    within = min(max(seconds, _MIN_SECONDS), _MAX_SECONDS)
    return math.ceil(math.log2(within / _MIN_SECONDS) * _BINS_A_DOUBLING)


def _upper_edge(index: int) -> float:
    return float(_MIN_SECONDS * 2 ** (index / _BINS_A_DOUBLING))
