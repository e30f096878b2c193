"""Steps of a trainer that numbers its own, from 1 on, and writes checkpoints without asking us.

What a step is trained on is written down before it, under its number: a trainer that goes on from
its checkpoint of a step finds there which Batches that checkpoint's weights were trained on.
"""

from collections.abc import Callable
from pathlib import Path

from rollyard.errors import Conflict
from rollyard.messages import Batch
from rollyard.trainers.states import from_json
from rollyard.trainers.steps import Save, Steps, write_whole
from rollyard.training_run import TrainingRun

IsKept = Callable[[int], bool]
"""Whether the trainer keeps a checkpoint of this step."""


class NumberedSteps:
    """`directory` is one that all LLM servers can read."""

    def __init__(self, run: TrainingRun, batch_size: int, directory: Path, is_kept: IsKept) -> None:
        self._run = run
        self._directory = directory.resolve()
        self._steps = Steps(run, batch_size, self._directory / "published")
        self._is_kept = is_kept
        self._published: int | None = None

    @property
    def version(self) -> int:
        """That of the weights published last."""
        return self._steps.version

    def publish(self, step: int, save: Save) -> None:
        """Publish the weights that the trainer has after `step`, unless they are. The first call
        says where the trainer begins.

        Raises what `TrainingRun.update_weights` does, and `Conflict` where the Run was trained on
        and what is written down of it is not there."""
        if step == self._published:
            return
        if self._published is not None:
            self._steps.trained(save)
        else:
            self._restore(step)
            self._steps.begin(save)
        self._published = step
        self._forget(step)

    def next(self, step: int, exact_for: str = "") -> Batch:
        """The Batch that `step` is trained on. Raises as `Steps.next`."""
        batch = self._steps.next(exact_for)
        write_whole(self._state(step), self._run.state_dict((batch,)))
        return batch

    def end(self) -> None:
        """Acknowledge the last Batch, once the weights that were trained on it are published."""
        self._steps.end()

    def _restore(self, step: int) -> None:
        file = self._state(step)
        if file.exists():
            self._steps.load_state_dict(from_json(file.read_text()))
        elif step and not self._steps.first_feed() and self._run.status().counters.groups_fed:
            raise Conflict(
                f"run {self._run.run_id!r} was trained on before, and of the checkpoint of step "
                f"{step} nothing says which batches it was trained on: there is no {file}",
                fix="give the directory of before, or another run_id",
            )

    def _state(self, step: int) -> Path:
        """Where the Run is when `step` is trained."""
        return self._directory / f"trained-{step}.json"

    def _forget(self, step: int) -> None:
        for file in self._directory.glob("trained-*.json"):
            number = int(file.stem.rpartition("-")[2])
            if number < step and not self._is_kept(number):
                file.unlink()
