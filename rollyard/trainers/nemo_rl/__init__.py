"""NeMo-RL's GRPO trainer on Batches of Rollyard."""

from rollyard.trainers.nemo_rl.rollouts import Rollouts
from rollyard.trainers.nemo_rl.rows import DataloaderRows

__all__ = ["DataloaderRows", "Rollouts"]
