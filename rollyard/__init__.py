"""Rollyard: a rollout service for agentic reinforcement learning. Import this in a trainer."""

from rollyard.async_client import AsyncClient
from rollyard.async_training_run import AsyncTrainingRun
from rollyard.client import Client
from rollyard.errors import RollyardError
from rollyard.messages import (
    Batch,
    BatchReport,
    Criterion,
    Group,
    Limits,
    Prediction,
    Recycling,
    Result,
    RunStatus,
    Sampling,
    Unit,
)
from rollyard.training_run import TrainingRun

__all__ = [
    "AsyncClient",
    "AsyncTrainingRun",
    "Batch",
    "BatchReport",
    "Client",
    "Criterion",
    "Group",
    "Limits",
    "Prediction",
    "Recycling",
    "Result",
    "RollyardError",
    "RunStatus",
    "Sampling",
    "TrainingRun",
    "Unit",
]
