"""What a trainer fed and has not trained on, so that it can feed it again: to an orchestrator that
forgot it, or after a restart of the trainer.

A Redis that is not told to write everything to disk before it answers may lose its last seconds
when it dies. A Run then counts fewer Groups than were fed to it, which nothing else brings about.
"""

import time
from collections.abc import Collection, Sequence

from rollyard.messages import Prompt

REMEMBER_SECONDS = 60.0


class Recall:
    def __init__(self) -> None:
        self._fed: dict[str, tuple[float, Prompt]] = {}
        """Prompt id -> when it was fed, and what; oldest first."""
        self._least_groups = 0
        """The Run has been given so many."""
        self._short_of_groups: int | None = None
        """What it counted instead, when all that is remembered was about to be fed again: if it
        counts the same after that, what it misses is trained on, or too old."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All that is remembered, oldest first."""
        return tuple(prompt for _, prompt in self._fed.values())

    def fed(self, prompts: Sequence[Prompt], new: int) -> None:
        """At least `new` of them surely became Groups just now."""
        at = time.monotonic()
        self._fed |= {prompt.prompt_id: (at, prompt) for prompt in prompts}
        self._least_groups += new

    def done(self, prompt_ids: Collection[str], alive: Collection[str]) -> None:
        """The Run has no others but `alive`; of those gone, `prompt_ids` are trained on."""
        lately = time.monotonic() - REMEMBER_SECONDS
        self._fed = {
            name: (at, prompt)
            for name, (at, prompt) in self._fed.items()
            if name in alive or (at >= lately and name not in prompt_ids)
        }

    def forgotten(self, groups_fed: int) -> tuple[Prompt, ...]:
        """What to feed again, now that the Run counts so many: nothing, if it forgot none."""
        fed_in_vain = groups_fed == self._short_of_groups
        if groups_fed >= self._least_groups or fed_in_vain:
            self._least_groups, self._short_of_groups = groups_fed, None
            return ()
        self._short_of_groups = groups_fed
        lately = time.monotonic() - REMEMBER_SECONDS
        return tuple(prompt for at, prompt in self._fed.values() if at >= lately)
