"""Steps of a trainer whose weights verl writes: a directory for each step, where they wait."""

from functools import partial
from pathlib import Path
from typing import Any

from rollyard.errors import Conflict
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
    """Move verl's weights. Raises `Conflict` where it has written none."""
    files = list(source.iterdir()) if source.is_dir() else []
    if not files:
        raise Conflict(
            f"verl has written no weights to {source}",
            fix="actor_rollout_ref.rollout.name=rollyard, and custom.checkpoints is to be a "
            "directory that its workers share with its trainer",
        )
    for file in files:
        file.rename(target / file.name)
