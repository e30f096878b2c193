"""TRL's GRPOTrainer, and its asynchronous one, on Batches of Rollyard."""

from rollyard.trainers.trl.async_grpo import AsyncRollouts, async_grpo_trainer
from rollyard.trainers.trl.grpo import Rollouts, grpo_trainer

__all__ = ["AsyncRollouts", "Rollouts", "async_grpo_trainer", "grpo_trainer"]
