"""The end of a wait for Jobs that no agent server can run, and none ever could."""

import time

from rollyard.errors import NeverOffered
from rollyard.messages import RunStatus

NEVER_OFFERED_SECONDS = 60.0
"""Time that is given to an agent server which has not been there before, unless a trainer says
otherwise."""


class Patience:
    """Owns since when a Run has had nothing but such Jobs. It begins anew with each wait."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since = time.monotonic()
        self._offered = -1
        """Number of Jobs so far that some server could run."""

    def end(self, status: RunStatus) -> NeverOffered | None:
        """The error once the Run has had nothing else for long enough; None before."""
        counters = status.counters
        offered = counters.jobs_submitted - counters.jobs_unoffered
        others = counters.jobs_leased or counters.jobs_queued > counters.jobs_unoffered
        now = time.monotonic()
        if not status.never_offered or others or offered != self._offered:
            self._since, self._offered = now, offered
        # At the first look no time has passed: the dataloader is asked once in any case.
        if self._seconds is None or now - self._since <= self._seconds:
            return None
        return NeverOffered(
            f"{counters.jobs_unoffered} jobs of run {status.run_id!r} wait in vain: "
            f"{status.never_offered}",
            fix="correct the rows, or start a server that has it: these jobs wait for it under "
            "this run_id, and rollout may be called again. If it takes long to start, pass "
            "never_offered_seconds to Client.run",
        )
