"""What TRL's trainers have in common: their checkpoints say where the Run was."""

from pathlib import Path
from typing import Any

from rollyard.trainers.states import from_json
from rollyard.trainers.steps import Steps, write_whole

STATE = "rollyard.json"
"""File of a checkpoint that says where the Run was. It is written last."""


class ResumableTraining:
    """The steps of a trainer of TRL's. Processes but the main one have none."""

    def __init__(self) -> None:
        self._steps: Steps | None = None
        self._trainer: Any = None

    def train(self, trainer: Any) -> Any:
        """`trainer.train()`, from the last whole checkpoint of its output directory if there is
        one."""
        self._trainer = trainer
        checkpoint = last_checkpoint(Path(trainer.args.output_dir))
        if checkpoint and self._steps:
            self._steps.load_state_dict(from_json((checkpoint / STATE).read_text()))
        return trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def stepped(self) -> None:
        """The optimizer has made a step."""

    def is_between_batches(self) -> bool:
        """Whether no Batch is trained on in part."""
        raise NotImplementedError

    def saved(self, checkpoint: Path) -> None:
        """This process has written its part of a checkpoint there. It is none to go on from in the
        middle of a Batch."""
        self._trainer.accelerator.wait_for_everyone()
        if self._steps is not None and self.is_between_batches():
            write_whole(checkpoint / STATE, self._steps.state_dict())

    def ended(self) -> None:
        """The training has ended."""
        if self._steps is not None:
            self._steps.end()


def callback_of(training: ResumableTraining) -> Any:
    from transformers import TrainerCallback

    class TRLCallback(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.stepped()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}")

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.ended()

    return TRLCallback()


def last_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = (file.parent for file in directory.glob(f"checkpoint-*/{STATE}"))
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def shared(trainer: Any, value: Any) -> Any:
    """The main process's value, in all processes."""
    from accelerate.utils import broadcast_object_list

    if trainer.accelerator.num_processes == 1:
        return value
    values = [value]
    broadcast_object_list(values)
    return values[0]
