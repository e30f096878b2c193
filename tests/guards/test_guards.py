"""The guards that `make mutants` removes."""

from pathlib import Path

import pytest

from chaos.guard import Guard
from chaos.guards import GUARDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_exactly_once_where_it_says(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.text) == 1


def test_there_are_at_least_fifteen_guards() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS) >= 15
