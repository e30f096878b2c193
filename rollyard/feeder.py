"""The feeder, which takes rows from the dataloader to the task queue, each once.

- Prompts that could not be fed are fed first the next time: the dataloader gives each row once.
- Prompts that the Run has lost are fed again: see `Recall`.
- A Prompt's id is made of the session and the row's number. The queues take an id once, so that a
  feeder restored to an earlier state repeats nothing in a Run that still exists.
- One thread at a time feeds; others may call `done` and `state` meanwhile.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from rollyard.codec import learnt
from rollyard.errors import Conflict, InvalidMessage, TooLarge
from rollyard.messages import Prompt
from rollyard.recall import Recall
from rollyard.rows import Row, Rows, RowsState

MAX_FED_AT_ONCE = 64
"""Prompts in one request."""


class FeedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a feeder, for the trainer's checkpoint."""

    session: str
    """Prefix of its Prompts' ids."""
    rows_drawn: int
    rows: RowsState
    prompts: tuple[Prompt, ...]
    """Prompts drawn, and neither trained on nor dropped; oldest first."""


class Feeder:
    """Feeds the rows of `dataloader`. `post` puts Prompts on the task queue, where one that is
    known already changes nothing."""

    def __init__(
        self,
        dataloader: Iterable[Row | Iterable[Row]],
        post: Callable[[Sequence[Prompt]], object],
    ) -> None:
        self._rows = Rows(dataloader)
        self._post = post
        # Prompt ids must not meet those of an earlier trainer process of the same Run.
        self._session = secrets.token_hex(4)
        self._rows_drawn = 0
        self._drawn: list[Prompt] = []
        """Prompts from the dataloader that are not fed yet."""
        self._recall = Recall()
        self._restored = False
        """True once a state was restored: Prompts fed after that may be known to the Run."""
        self._changing = threading.Lock()
        self.exhausted = False
        """True once the dataloader has ended and all of its rows are fed."""

    def feed(self, wanted: int) -> None:
        """Feed so many Prompts, or as many as the dataloader still has."""
        while wanted > 0:
            together = min(wanted, MAX_FED_AT_ONCE)
            with self._changing:
                self._draw(together)
                first = tuple(self._drawn[:together])
            if not first:
                self.exhausted = True
                return
            wanted -= len(first)
            self._send(first)

    def feed_again(self, groups_fed: int) -> int:
        """Feed again the Prompts that a Run with `groups_fed` Groups may have lost. Returns their
        number."""
        with self._changing:
            forgotten = self._recall.forgotten(groups_fed)
        for first in range(0, len(forgotten), MAX_FED_AT_ONCE):
            together = forgotten[first : first + MAX_FED_AT_ONCE]
            try:
                self._post(together)
            except TooLarge:  # together; each alone was taken before
                for prompt in together:
                    self._post((prompt,))
        return len(forgotten)

    def done(self, prompt_ids: Collection[str], alive: Collection[str]) -> None:
        """Note that the Run has no Prompts but `alive`; others in `prompt_ids` are trained on, and
        never fed again."""
        with self._changing:
            self._recall.done(prompt_ids, alive)

    def state(self, alive: Callable[[], Collection[str]]) -> FeedState:
        """The present state. `alive` asks the Run for the ids of the Prompts that it still has."""
        with self._changing:
            drawn, fed = tuple(self._drawn), self._recall.prompts
            session, rows_drawn, rows = self._session, self._rows_drawn, self._rows.state()
        # Asked last: Prompts fed meanwhile are in `drawn`, and would be missing in an older answer.
        known = alive()
        left = [prompt for prompt in fed if prompt.prompt_id in known]
        return FeedState(session=session, rows_drawn=rows_drawn, rows=rows, prompts=(*left, *drawn))

    def restore(self, state: FeedState) -> None:
        """Continue from an earlier state. Raises `Conflict` once rows are drawn."""
        with self._changing:
            if self._rows_drawn or self._drawn:
                raise Conflict(
                    f"{self._rows_drawn} rows are drawn already",
                    fix="put the state back before the first request or rollout",
                )
            self._rows.restore(state.rows)
            self._session, self._rows_drawn = state.session, state.rows_drawn
            self._drawn = list(state.prompts)
            self._restored = True

    def _draw(self, wanted: int) -> None:
        while len(self._drawn) < wanted and (row := self._rows.draw()) is not None:
            name = f"{self._session}-{self._rows_drawn:08d}"
            self._rows_drawn += 1
            self._drawn.append(Prompt(prompt_id=name, instance=dict(row)))

    def _send(self, first: tuple[Prompt, ...]) -> None:
        """Feed the first Prompts drawn. One that cannot run is dropped, and its error raised."""
        try:
            self._post(first)
        except (InvalidMessage, TooLarge):
            if len(first) > 1:  # one of them is refused, or they are too large together
                for prompt in first:
                    self._send((prompt,))
                return
            with self._changing:
                del self._drawn[0]
            raise
        with self._changing:
            del self._drawn[: len(first)]
            self._recall.fed(first, new=0 if self._restored else len(first))


def state_dict(state: FeedState) -> dict[str, Any]:
    """`state` as dicts and lists. Rows are not copied: they may hold objects that JSON cannot."""
    prompts = [{"prompt_id": p.prompt_id, "instance": p.instance} for p in state.prompts]
    rows = msgspec.structs.asdict(state.rows)
    return {
        **msgspec.structs.asdict(state),
        "rows": {**rows, "waiting": list(rows["waiting"])},
        "prompts": prompts,
    }


def from_state_dict(state: dict[str, Any]) -> FeedState:
    try:
        return msgspec.convert(state, learnt(FeedState))
    except msgspec.ValidationError as error:
        raise InvalidMessage(
            f"not the state of a training run: {error}",
            fix="pass what TrainingRun.state_dict() returned",
        ) from error
