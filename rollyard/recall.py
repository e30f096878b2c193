"""What a trainer fed lately, so that it can feed it again if the orchestrator forgets it.

A Redis that is not told to write everything to disk before it answers may lose its last seconds
when it dies. A Run then counts fewer Jobs than were fed to it, which nothing else can bring about.
"""

import time
from collections import deque
from collections.abc import Collection, Sequence

from rollyard.messages import Prompt

REMEMBER_SECONDS = 60.0


class Recall:
    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self._fed: deque[tuple[float, Prompt]] = deque()
        self._least_jobs = 0
        """The Run has been given so many."""
        self._short_of_jobs: int | None = None
        """What it counted instead, when all that is remembered was about to be fed again: if it
        counts the same after that, what it misses is trained on, or too old."""

    def fed(self, prompts: Sequence[Prompt]) -> None:
        at = time.monotonic()
        self._fed += [(at, prompt) for prompt in prompts]
        self._least_jobs += len(prompts) * self._group_size

    def done(self, prompt_ids: Collection[str]) -> None:
        """They are trained on, and need not be fed again."""
        self._fed = deque(each for each in self._fed if each[1].prompt_id not in prompt_ids)

    def forgotten(self, jobs_submitted: int) -> tuple[Prompt, ...]:
        """What to feed again, now that the Run counts so many Jobs: nothing, if it forgot none."""
        while self._fed and self._fed[0][0] < time.monotonic() - REMEMBER_SECONDS:
            self._fed.popleft()
        fed_in_vain = jobs_submitted == self._short_of_jobs
        if jobs_submitted >= self._least_jobs or fed_in_vain:
            self._least_jobs, self._short_of_jobs = jobs_submitted, None
            return ()
        self._short_of_jobs = jobs_submitted
        return tuple(prompt for _, prompt in self._fed)
