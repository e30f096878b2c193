"""Growth of memory over a run, from the observer's samples.

- A process is judged over one life, after a warm-up, if that was long enough: its memory in the
  last third is compared with that in the first.
- Redis is judged over the whole run, since it keeps its data when it is killed.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import msgspec

from chaos.history import Event

MIN_SECONDS = 60.0
"""Minimum length of a life that is judged: threads and caches are made in the meantime."""
WARM_UP_SHARE = 0.25
MAX_GROWTH_SHARE = 0.1
MAX_GROWTH_BYTES = 8 * 2**20
"""Bounds on growth, of which the larger one holds: less counts as none."""

Series = list[tuple[float, int]]
"""Pairs of unix seconds and bytes."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of the life that grew most, of all processes of one kind."""

    seconds: float
    first_mib: float
    last_mib: float
    flat: bool


def growth_by_kind(samples: list[Event]) -> dict[str, Growth]:
    """The growth of each kind of process that can be judged; none for a run that was too short."""
    found: dict[str, list[Growth]] = defaultdict(list)
    for (kind, _, _), series in _lives(samples).items():
        if series[-1][0] - series[0][0] >= MIN_SECONDS:
            found[kind].append(_growth(series))
    return {kind: max(each, key=lambda g: g.last_mib - g.first_mib) for kind, each in found.items()}


def _lives(samples: Iterable[Event]) -> dict[tuple[str, str, int], Series]:
    lives: dict[tuple[str, str, int], Series] = defaultdict(list)
    for sample in samples:
        lives["redis", "redis", 0].append((sample["at"], sample["redis_bytes"]))
        for name, (pid, resident) in sample["processes"].items():
            lives[name.rsplit("-", 1)[0], name, pid].append((sample["at"], resident))
    return lives


def _growth(series: Series) -> Growth:
    settled = [size for _, size in series[int(len(series) * WARM_UP_SHARE) :]]
    third = max(1, len(settled) // 3)
    first, last = median(settled[:third]), median(settled[-third:])
    return Growth(
        seconds=round(series[-1][0] - series[0][0], 1),
        first_mib=round(first / 2**20, 1),
        last_mib=round(last / 2**20, 1),
        flat=last - first <= max(MAX_GROWTH_BYTES, first * MAX_GROWTH_SHARE),
    )
