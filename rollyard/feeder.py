"""Takes Prompts from the dataloader to the task queue, each row once.

- What could not be fed is fed first the next time: the dataloader gives each row once.
- What was fed and forgotten is fed again: see `Recall`.
"""

import itertools
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rollyard.errors import InvalidMessage, TooLarge
from rollyard.messages import Prompt
from rollyard.recall import Recall

Row = Mapping[str, Any]
"""A dataset row: at least `data_source`, which names the environment."""

MOST_FED_AT_ONCE = 64
"""Prompts in one request."""


class Feeder:
    """`post` puts Prompts on the task queue; one that was there before changes nothing."""

    def __init__(
        self,
        dataloader: Iterable[Row | Iterable[Row]],
        group_size: int,
        post: Callable[[Sequence[Prompt]], object],
    ) -> None:
        self._rows = _flatten(dataloader)
        self._post = post
        # Prompt ids must not meet those of an earlier trainer process of the same Run.
        self._session = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._drawn: list[Prompt] = []
        """Prompts from the dataloader that are not fed yet."""
        self._recall = Recall(group_size)
        self.exhausted = False
        """The dataloader has ended, and all of it is fed."""

    def feed(self, wanted: int) -> None:
        while wanted > 0:
            missing = max(0, min(wanted, MOST_FED_AT_ONCE) - len(self._drawn))
            self._drawn += map(self._prompt, itertools.islice(self._rows, missing))
            if not self._drawn:
                self.exhausted = True
                return
            wanted -= len(self._drawn)
            self._send(tuple(self._drawn))

    def feed_again(self, jobs_submitted: int) -> int:
        """Feed what a Run that counts so many Jobs may have forgotten; returns how much that is."""
        forgotten = self._recall.forgotten(jobs_submitted)
        for first in range(0, len(forgotten), MOST_FED_AT_ONCE):
            together = forgotten[first : first + MOST_FED_AT_ONCE]
            try:
                self._post(together)
            except TooLarge:
                for prompt in together:
                    self._post((prompt,))
        return len(forgotten)

    def done(self, prompt_ids: Collection[str]) -> None:
        """They are trained on, and never fed again."""
        self._recall.done(prompt_ids)

    def _send(self, first: tuple[Prompt, ...]) -> None:
        """Feed the first Prompts drawn. One that nobody can run is never fed again."""
        try:
            self._post(first)
        except (InvalidMessage, TooLarge):
            if len(first) > 1:  # one of them spoils the others, or they are too many
                for prompt in first:
                    self._send((prompt,))
                return
            del self._drawn[0]
            raise
        del self._drawn[: len(first)]
        self._recall.fed(first)

    def _prompt(self, row: Row) -> Prompt:
        name = f"{self._session}-{next(self._numbers):08d}"
        return Prompt(prompt_id=name, instance=dict(row))


def _flatten(dataloader: Iterable[Row | Iterable[Row]]) -> Iterator[Row]:
    for item in dataloader:
        if isinstance(item, Mapping):
            yield item
        else:
            yield from item
