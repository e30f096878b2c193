"""A dataloader goes on behind the last row drawn, whatever kind it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from rollyard.errors import InvalidMessage
from rollyard.rows import Rows, RowsState


def row(number: int) -> dict[str, Any]:
    return {"data_source": "x", "number": number}


def numbers(rows: Rows) -> list[int]:
    return [each["number"] for each in iter(rows.draw, None)]


ITEMS: list[Any] = [[row(0), row(1), row(2)], row(3), [], [row(4)], row(5)]


class Shuffled:
    """Knows where it stands, and would begin anew with another order."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.position = 0

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        while self.position < len(self.order):
            self.position += 2
            yield [row(number) for number in self.order[self.position - 2 : self.position]]

    def state_dict(self) -> dict[str, Any]:
        return {"order": list(self.order), "position": self.position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.order, self.position = state_dict["order"], state_dict["position"]


@pytest.mark.parametrize("drawn", range(7))
def test_what_was_drawn_is_skipped_and_nothing_else(drawn: int) -> None:
    before = Rows(ITEMS)
    for _ in range(drawn):
        before.draw()
    after = Rows(ITEMS)
    after.restore(before.state())
    assert numbers(after) == list(range(drawn, 6))


@pytest.mark.parametrize("drawn", range(7))
def test_a_dataloader_that_knows_where_it_stands_is_asked(drawn: int) -> None:
    order = [4, 0, 5, 2, 1, 3]
    before = Rows(Shuffled(order))
    seen = [each["number"] for _ in range(drawn) if (each := before.draw())]
    after = Rows(Shuffled([0, 1, 2, 3, 4, 5]))
    after.restore(before.state())
    assert seen + numbers(after) == order


def test_a_dataloader_that_is_too_short_is_another_one() -> None:
    with pytest.raises(InvalidMessage, match="ends after 1 items, and 2 were drawn"):
        Rows([row(0)]).restore(RowsState(items_drawn=2, waiting=(), dataloader=None))


def test_a_state_of_a_dataloader_is_of_no_use_to_one_without() -> None:
    state = Rows(Shuffled([0, 1])).state()
    with pytest.raises(InvalidMessage, match="pass the same kind of dataloader"):
        Rows(ITEMS).restore(state)
