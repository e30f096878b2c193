"""A dataloader as one stream of rows, whose position can be saved and restored."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import msgspec

from rollyard.errors import InvalidMessage

Row = Mapping[str, Any]
"""A dataset row: at least `data_source`, which names the environment."""


@runtime_checkable
class Stateful(Protocol):
    """A dataloader that saves its own position, such as torchdata's StatefulDataLoader."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class RowsState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    items_drawn: int
    """Items drawn from the dataloader, each of which is a row or a list of rows."""
    waiting: tuple[dict[str, Any], ...]
    """Rows of the last item that are not drawn yet."""
    dataloader: dict[str, Any] | None
    """The dataloader's own state, if it is `Stateful`."""


class Rows:
    def __init__(self, dataloader: Iterable[Row | Iterable[Row]]) -> None:
        self._dataloader = dataloader
        self._items: Iterator[Row | Iterable[Row]] | None = None
        """Made with the first row, because a dataloader's state must be loaded before that."""
        self._items_drawn = 0
        self._waiting: deque[Row] = deque()

    def draw(self) -> Row | None:
        """The next row, or None at the end."""
        if self._items is None:
            self._items = iter(self._dataloader)
        while not self._waiting:
            item = next(self._items, None)
            if item is None:
                return None
            self._items_drawn += 1
            self._waiting.extend((item,) if isinstance(item, Mapping) else item)
        return self._waiting.popleft()

    def state(self) -> RowsState:
        own = self._dataloader.state_dict() if isinstance(self._dataloader, Stateful) else None
        return RowsState(
            items_drawn=self._items_drawn,
            waiting=tuple(dict(row) for row in self._waiting),
            dataloader=own,
        )

    def restore(self, state: RowsState) -> None:
        """Continue after the last row drawn; call it before the first `draw`. Raises
        `InvalidMessage` for the state of another dataloader."""
        self._items_drawn = state.items_drawn
        self._waiting = deque(state.waiting)
        if isinstance(self._dataloader, Stateful) and state.dataloader is not None:
            self._dataloader.load_state_dict(state.dataloader)
            return
        if state.dataloader is not None:
            raise InvalidMessage(
                "the state was taken from a dataloader with a state_dict, and this one has none",
                fix="pass the same kind of dataloader",
            )
        self._items = iter(self._dataloader)
        skipped = sum(1 for _ in islice(self._items, state.items_drawn))
        if skipped < state.items_drawn:
            raise InvalidMessage(
                f"the dataloader ends after {skipped} items, and {state.items_drawn} were drawn "
                "from it before",
                fix="pass the dataloader that the state was taken with",
            )
