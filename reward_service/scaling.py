"""How many workers there should be: a pure decision.

It only ever says how many to add. A worker without a task leaves by itself, since nobody else knows
for sure that it has none: one that was told to leave might just have taken the next task.
"""

import msgspec

from rollyard.messages import check


class ScalingSettings(msgspec.Struct, frozen=True, kw_only=True):
    most_workers: int = 8
    tasks_per_worker: int = 1
    """Tasks that may wait or run for each worker before there is another one."""
    idle_seconds: int = 10
    """Time without a task after which a worker leaves."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            check(value >= 1, f"{name} must be positive, got {value}")


def workers_to_add(tasks: int, workers: int, settings: ScalingSettings) -> int:
    """The number of workers to start while `tasks` wait or run in `workers`."""
    wanted = min(settings.most_workers, -(-tasks // settings.tasks_per_worker))
    return max(0, wanted - workers)
