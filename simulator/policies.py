"""Ways to sample, each by its name: settings of the production sampler, and a barrier or not."""

import msgspec

from rollyard.errors import NotFound
from rollyard.messages import Prediction, Recycling, RunSettings

RUN = "simulated"
"""The id of the one Run."""


class SamplingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    settings: RunSettings
    barrier: bool = False
    """Feed as many Prompts as a Batch has, and judge none before all of their Jobs are done."""


_KINDS: dict[str, tuple[Recycling, Prediction]] = {
    "batchwise": (Recycling.DISCARD, Prediction()),
    "discard": (Recycling.DISCARD, Prediction()),
    "restart": (Recycling.RESTART, Prediction()),
    "resume": (Recycling.RESUME, Prediction()),
    "launch-order": (Recycling.RESUME, Prediction(launch_order=True)),
    "staged": (Recycling.RESUME, Prediction(stage_members=4)),
    "history": (Recycling.RESUME, Prediction(skip_by_history=True)),
    "history-staged": (Recycling.RESUME, Prediction(skip_by_history=True, stage_members=4)),
}
NAMES = tuple(_KINDS)


def policy(name: str, *, group_size: int = 8, max_staleness: int = 1) -> SamplingPolicy:
    """`batchwise` is the baseline: a step generates, waits for all, filters, and repeats."""
    if name not in _KINDS:
        known = ", ".join(NAMES)
        raise NotFound(f"there is no policy {name!r}", fix=f"take one of {known}")
    recycling, prediction = _KINDS[name]
    if prediction.stage_members:
        halves = msgspec.structs.replace(prediction, stage_members=max(1, group_size // 2))
        prediction = halves
    settings = RunSettings(
        run_id=RUN,
        group_size=group_size,
        recycling=recycling,
        max_staleness=max_staleness,
        prediction=prediction,
    )
    return SamplingPolicy(name=name, settings=settings, barrier=name == "batchwise")
