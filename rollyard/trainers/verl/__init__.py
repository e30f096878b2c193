"""verl's PPO trainer on Batches of Rollyard."""

from rollyard.trainers.verl.fields import data_proto
from rollyard.trainers.verl.rollouts import Rollouts
from rollyard.trainers.verl.weights import register

__all__ = ["Rollouts", "data_proto", "register"]
