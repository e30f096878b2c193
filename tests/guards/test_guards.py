"""The guards that `make mutants` removes."""

from pathlib import Path

import pytest

from tests.guards.catalogue import GUARDS
from tests.guards.guard import Guard

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_exactly_once_where_it_says(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.text) == 1


def test_every_guard_has_a_name_of_its_own() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
