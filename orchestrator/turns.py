"""Turns in which calls without an epoch read a Run: together, and at most twice a second.

- A trainer's call has an epoch and takes no turns. One without may be that of a dashboard that
  polls without a pause: any number of them must cost the Run as little as one.
- Owns the time of each Run's last turn, or of its next one if a call waits for it; forgets it once
  it is too long ago to delay a call.
"""

import threading
import time

SECONDS_BETWEEN = 0.5


class Turns:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, float] = {}
        """Run -> time of its turn, in monotonic seconds."""

    def wait(self, run_id: str, seconds: float) -> None:
        """Sleep until the Run's next turn, at most for `seconds`."""
        now = time.monotonic()
        turn = self._join(run_id, now)
        time.sleep(max(0.0, min(turn - now, seconds)))

    def _join(self, run_id: str, now: float) -> float:
        """Time of the turn that other calls wait for, or else of the next one, which may be now."""
        with self._lock:
            due = {run: turn for run, turn in self._turns.items() if turn + SECONDS_BETWEEN > now}
            turn = due.get(run_id, now - SECONDS_BETWEEN)
            if turn <= now:
                turn = max(now, turn + SECONDS_BETWEEN)
            self._turns = {**due, run_id: turn}
            return turn
