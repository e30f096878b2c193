"""Steps of a trainer whose weights verl writes: a directory for each step, where they wait."""

from functools import partial
from pathlib import Path
from typing import Any

from rollyard.trainers.numbered_steps import NumberedSteps
from rollyard.trainers.verl.config import checkpoints_of, weights_of
from rollyard.training_run import TrainingRun


class VerlSteps(NumberedSteps):
    """`config` is verl's."""

    def __init__(self, config: Any, run: TrainingRun) -> None:
        self._written = checkpoints_of(config.actor_rollout_ref.rollout)
        kept = Path(config.trainer.default_local_dir)
        super().__init__(
            run,
            config.data.train_batch_size,
            self._written,
            lambda step: (kept / f"global_step_{step}").exists(),
        )

    def publish_written(self, step: int) -> None:
        """Publish the weights that verl has after `step`. Raises as `publish`."""
        self.publish(step, partial(move, weights_of(self._written, step)))


def move(source: Path, target: Path) -> None:
    for file in source.iterdir():
        file.rename(target / file.name)
