"""Two-digit multiplication problems, as dataset rows.

- The split is deterministic, and `a*b` falls on the same side as `b*a`, so that no held-out
  product was ever trained on.
- A row names its environment (`data_source`) and itself (`instance_id`); the rest is what that
  environment needs.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

OPERANDS = range(10, 100)
HELD_OUT_PROBLEMS = 200
_SPLIT_SEED = 20250314

Row = dict[str, Any]


def train_rows() -> list[Row]:
    """Every problem that is not held out."""
    return _rows()[HELD_OUT_PROBLEMS:]


def held_out_rows() -> list[Row]:
    """The problems that pass rates are measured on."""
    return _rows()[:HELD_OUT_PROBLEMS]


def training_dataloader(seed: int) -> Iterator[Row]:
    """Training rows without end: each epoch is a fresh shuffle of all of them."""
    rows = train_rows()
    shuffles = random.Random(seed)
    while True:
        shuffles.shuffle(rows)
        yield from rows


def row(left: int, right: int) -> Row:
    return {
        "data_source": "arithmetic",
        "instance_id": f"{left}x{right}",
        "question": f"{left}*{right}",
        "answer": str(left * right),
    }


def _rows() -> list[Row]:
    """All rows in split order: squares last, so that the split never cuts a pair in two."""
    pairs = list(itertools.combinations(OPERANDS, 2))
    random.Random(_SPLIT_SEED).shuffle(pairs)
    both_orders = [row(*order) for a, b in pairs for order in ((a, b), (b, a))]
    return both_orders + [row(number, number) for number in OPERANDS]
