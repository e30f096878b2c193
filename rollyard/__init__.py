"""Rollyard: a rollout service for agentic reinforcement learning. Import this in a trainer."""

from rollyard.client import Client, TrainingRun
from rollyard.errors import RollyardError
from rollyard.messages import Batch, Criterion, Group, Limits, Result, RunStatus, Sampling

__all__ = [
    "Batch",
    "Client",
    "Criterion",
    "Group",
    "Limits",
    "Result",
    "RollyardError",
    "RunStatus",
    "Sampling",
    "TrainingRun",
]
