"""Rows of a dataset as the Prompts of one environment."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rollyard.datasets import Dataset
from rollyard.errors import InvalidMessage
from rollyard.messages import Prompt

MAX_NAMED = 8
"""Environments that an error names."""


def prompts(name: str, data: Path) -> Iterator[Prompt]:
    """The rows of `data`, by their numbers from 0; those of other environments are left out. Raises
    `InvalidMessage` if no row is left."""
    others: set[str] = set()
    found = False
    for number, row in enumerate(Dataset(data, data_source=name)):
        if row["data_source"] == name:
            found = True
            yield Prompt(prompt_id=f"row-{number}", instance=row)
        else:
            others.add(str(row["data_source"]))
    if not found:
        told = (
            f"its rows are of {', '.join(sorted(others)[:MAX_NAMED])}"
            if others
            else "it has no row at all"
        )
        raise InvalidMessage(
            f"{data} has no row of the environment {name!r}: {told}",
            fix="name the environment of its rows, or correct their data_source",
        )


def prompt(name: str, data: Path, number: int) -> Prompt:
    """The row with this number. Raises `InvalidMessage` if there is none."""
    rows = Dataset(data, data_source=name)
    row = next(islice(rows, number, None), None)
    if row is None:
        count = sum(1 for _ in rows)
        there_are = f"rows 0 to {count - 1}" if count else "no rows"
        raise InvalidMessage(
            f"{data} has no row {number}, it has {there_are}", fix="name one of them with --row"
        )
    return Prompt(prompt_id=f"row-{number}", instance=row | {"data_source": name})
