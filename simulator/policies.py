"""Sampling policies by name: settings of the production sampler, with or without a barrier."""

import msgspec

from rollyard.errors import NotFound
from rollyard.messages import Prediction, Recycling, RunSettings

RUN = "simulated"
"""Id of the one simulated Run."""


class SamplingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    settings: RunSettings
    barrier: bool = False
    """True to feed as many Prompts as a Batch has, and to judge none before all Jobs are done."""


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
    """The policy of that name; `batchwise` is the baseline, which generates, waits for all Jobs,
    filters, and repeats. Raises `NotFound`."""
    if name not in _KINDS:
        known = ", ".join(NAMES)
        raise NotFound(f"there is no policy {name!r}", fix=f"take one of {known}")
    recycling, prediction = _KINDS[name]
    if prediction.stage_members:
        prediction = msgspec.structs.replace(prediction, stage_members=max(1, group_size // 2))
    settings = RunSettings(
        run_id=RUN,
        group_size=group_size,
        recycling=recycling,
        max_staleness=max_staleness,
        prediction=prediction,
    )
    return SamplingPolicy(name=name, settings=settings, barrier=name == "batchwise")
