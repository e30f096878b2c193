"""The rows of NeMo-RL's dataloader, whose items are batches of its data."""

from collections.abc import Callable, Iterator
from typing import Any

from rollyard.rows import Row

Datum = dict[str, Any]
"""One element of a dataloader's batch: `message_log`, `extra_env_info`, `task_name`, `idx`, ..."""
RowOf = Callable[[Datum], Row]


def row_of(datum: Datum) -> Row:
    """What the environment named `task_name` reads: the datum's `extra_env_info`, which may name
    another as `data_source`."""
    return {"data_source": datum.get("task_name"), **(datum["extra_env_info"] or {})}


def data_of(batch: Any) -> list[Datum]:
    """The data of a dataloader's batch."""
    return [
        {name: values[number] for name, values in batch.items()}
        for number in range(len(batch["message_log"]))
    ]


class DataloaderRows:
    """The dataloader of a Run: the rows of NeMo-RL's, over so many epochs. Its position is in the
    Run's state."""

    def __init__(self, dataloader: Any, row: RowOf = row_of, *, epochs: int = 1) -> None:
        self._dataloader = dataloader
        self._row = row
        self._epochs = epochs
        self._epoch = 0

    def __iter__(self) -> Iterator[list[Row]]:
        while self._epoch < self._epochs:
            for batch in self._dataloader:
                yield [self._row(datum) for datum in data_of(batch)]
            self._epoch += 1

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "dataloader": self._dataloader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch = state["epoch"]
        self._dataloader.load_state_dict(state["dataloader"])
