"""Rollyard: a rollout service for agentic reinforcement learning. Import this in a trainer."""

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
