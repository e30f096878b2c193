"""Prompts that were fed and not trained on, kept so that they can be fed again: to a Run that lost
them, or after a restart of the trainer.

A Redis that answers before its writes are on disk may lose its last seconds when it dies. A Run
then counts fewer Groups than were fed to it, which has no other cause.
"""

import time
from collections.abc import Collection, Sequence

from rollyard.messages import Prompt

# A Redis that dies again before what was fed again is on disk is back at the same number.
_TRIES = 2

REMEMBER_SECONDS = 60.0
"""Time for which Prompts are kept that the Run does not have any more."""


class Recall:
    def __init__(self) -> None:
        self._fed: dict[str, tuple[float, Prompt]] = {}
        """Prompt id -> when it was fed (monotonic seconds), and the Prompt; oldest first."""
        self._least_groups = 0
        """Minimum number of Groups that the Run must count if it has lost none."""
        self._short_of_groups: int | None = None
        """The lower number that it counted when all kept Prompts were fed again."""
        self._tries = 0
        """Times that they were fed again to a Run that counted this number. If it counts no more
        after `_TRIES`, the missing ones are trained on, or too old to be kept."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All Prompts that are kept, oldest first."""
        return tuple(prompt for _, prompt in self._fed.values())

    def fed(self, prompts: Sequence[Prompt], new: int) -> None:
        """Keep these Prompts, of which at least `new` have just become Groups."""
        at = time.monotonic()
        self._fed |= {prompt.prompt_id: (at, prompt) for prompt in prompts}
        self._least_groups += new

    def done(self, prompt_ids: Collection[str], alive: Collection[str]) -> None:
        """Note that the Run has no Prompts but `alive`; of the others, `prompt_ids` are trained
        on."""
        lately = time.monotonic() - REMEMBER_SECONDS
        self._fed = {
            name: (at, prompt)
            for name, (at, prompt) in self._fed.items()
            if name in alive or (at >= lately and name not in prompt_ids)
        }

    def forgotten(self, groups_fed: int) -> tuple[Prompt, ...]:
        """The Prompts to feed again to a Run that counts `groups_fed`; empty if it lost none."""
        if groups_fed != self._short_of_groups:
            self._tries = 0
        if groups_fed >= self._least_groups or self._tries == _TRIES:
            self._least_groups, self._short_of_groups = groups_fed, None
            return ()
        self._short_of_groups = groups_fed
        self._tries += 1
        lately = time.monotonic() - REMEMBER_SECONDS
        return tuple(prompt for at, prompt in self._fed.values() if at >= lately)
