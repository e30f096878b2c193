"""Rollyard: a rollout service for agentic reinforcement learning. Import this in a trainer.

Each name is imported when it is first asked for: services, and the processes that agent servers
fork for every episode, need modules of this package and no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollyard.async_client import AsyncClient as AsyncClient
    from rollyard.async_training_run import AsyncTrainingRun as AsyncTrainingRun
    from rollyard.client import Client as Client
    from rollyard.datasets import Dataset as Dataset
    from rollyard.errors import RollyardError as RollyardError
    from rollyard.messages import Batch as Batch
    from rollyard.messages import BatchReport as BatchReport
    from rollyard.messages import Criterion as Criterion
    from rollyard.messages import Group as Group
    from rollyard.messages import Limits as Limits
    from rollyard.messages import Prediction as Prediction
    from rollyard.messages import Recycling as Recycling
    from rollyard.messages import Result as Result
    from rollyard.messages import RunStatus as RunStatus
    from rollyard.messages import Sampling as Sampling
    from rollyard.messages import Unit as Unit
    from rollyard.training_run import TrainingRun as TrainingRun

_MESSAGES = (
    *("Batch", "BatchReport", "Criterion", "Group", "Limits", "Prediction"),
    *("Recycling", "Result", "RunStatus", "Sampling", "Unit"),
)
_MODULES = {
    "AsyncClient": "async_client",
    "AsyncTrainingRun": "async_training_run",
    "Client": "client",
    "Dataset": "datasets",
    "RollyardError": "errors",
    "TrainingRun": "training_run",
    **dict.fromkeys(_MESSAGES, "messages"),
}
"""Module of each name."""
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if (module := _MODULES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
