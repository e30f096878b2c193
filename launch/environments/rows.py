"""Rows of a dataset as the Prompts of one environment."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rollyard.datasets import Dataset
from rollyard.errors import InvalidMessage
from rollyard.messages import Prompt


def prompts(name: str, data: Path) -> Iterator[Prompt]:
    """The rows of `data`, by their numbers from 0; those of other environments are left out."""
    for number, row in enumerate(Dataset(data, data_source=name)):
        if row["data_source"] == name:
            yield Prompt(prompt_id=f"row-{number}", instance=row)


def prompt(name: str, data: Path, number: int) -> Prompt:
    """The row with this number. Raises `InvalidMessage` if there is none."""
    row = next(islice(Dataset(data, data_source=name), number, None), None)
    if row is None:
        raise InvalidMessage(f"{data} has no row {number}", fix="rows count from 0")
    return Prompt(prompt_id=f"row-{number}", instance=row | {"data_source": name})
