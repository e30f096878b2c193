"""TensorBoard beside the training: what each step's Batch was, in numbers."""

from pathlib import Path
from types import TracebackType

from history import StepRecord
from rich.console import Console
from tensorboard import program
from torch.utils.tensorboard import SummaryWriter

from rollyard.messages import Batch


class Board:
    """Owns the event files in `directory`, and a TensorBoard that shows them on this machine alone
    for as long as this process lives."""

    def __init__(self, directory: Path, console: Console) -> None:
        self._writer = SummaryWriter(str(directory))
        server = program.TensorBoard()
        server.configure(logdir=str(directory), host="127.0.0.1", reload_interval=2.0)
        self.url: str = server.launch()
        """With the next free port from 6006 on."""
        console.print(f"TensorBoard: {self.url}", soft_wrap=True)

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def stepped(self, batch: Batch, step: StepRecord) -> None:
        numbers = {"train/loss": step.loss, "train/logprob_gap": step.logprob_gap}
        for name, number in {**batch.metrics(), **numbers}.items():
            self._writer.add_scalar(name, number, step.step)
        self._writer.flush()
