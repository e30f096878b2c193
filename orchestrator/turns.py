"""When those who only watch a Run look at it: together, and at most twice a second.

- A trainer shows its epoch and takes no turns. Whoever waits without one may be a dashboard that
  asks again as soon as it is answered: any number of them is to cost the Run as little as one.
- Owns the time of each Run's last turn, or of its next one if somebody waits for it; forgets it
  when it is too long ago to keep anybody waiting.
"""

import threading
import time

SECONDS_BETWEEN = 0.5


class Turns:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, float] = {}
        """Run -> monotonic time."""

    def wait(self, run_id: str, seconds: float) -> None:
        """Until it is the turn of those who watch the Run, at most so many seconds."""
        now = time.monotonic()
        turn = self._join(run_id, now)
        time.sleep(max(0.0, min(turn - now, seconds)))

    def _join(self, run_id: str, now: float) -> float:
        """The turn that others wait for, or else the next one, which may be now."""
        with self._lock:
            due = {run: turn for run, turn in self._turns.items() if turn + SECONDS_BETWEEN > now}
            turn = due.get(run_id, now - SECONDS_BETWEEN)
            if turn <= now:
                turn = max(now, turn + SECONDS_BETWEEN)
            self._turns = {**due, run_id: turn}
            return turn
