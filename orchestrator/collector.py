"""The collector: feeds the events of every Run to its sampler and carries out what it decides.

- Owns no state: the sampler's is stored with each conclusion, so that a restart goes on with the
  first event not concluded. Two collectors may run: a conclusion from an outdated state is refused.
- Events that wait together are concluded together. Runs take turns: a Run with events that came
  meanwhile is told of again.
- A Run that was closed is swept a slice a turn, until nothing of it is left.
- What a decision means for running Jobs is pushed to their servers; the next heartbeat repeats it.
- Only the first event that waits wakes a collector. If that one dies, another looks at all Runs
  within `LOOK_AROUND_SECONDS`.
"""

import threading
import time
from collections.abc import Callable

import structlog

from orchestrator.queues.contract import Conclusion, Moved, Turn
from orchestrator.queues.redis_queues import Queues
from orchestrator.sampling.sampler import Sampler
from rollyard.errors import Conflict, Overtaken, QueueUnavailable

log = structlog.get_logger()

LOOK_AROUND_SECONDS = 5.0


class Collector:
    def __init__(self, queues: Queues, push: Callable[[Moved], None]) -> None:
        self._queues = queues
        self._push = push

    def run(self, stopping: threading.Event) -> None:
        """Collect until `stopping` is set."""
        look_around_at = time.monotonic()
        while not stopping.is_set():
            try:
                if time.monotonic() >= look_around_at:
                    for run_id in self._queues.run_ids():
                        self._collect_if_readable(run_id)
                    look_around_at = time.monotonic() + LOOK_AROUND_SECONDS
                patience = max(0.0, look_around_at - time.monotonic())
                run_id_or_none = self._queues.wait_for_events(patience)
                if run_id_or_none is not None:
                    self._collect_if_readable(run_id_or_none)
            except QueueUnavailable as error:
                log.warning("collector_waits_for_redis", error=error.message)
                look_around_at = time.monotonic()
                stopping.wait(0.5)

    def _collect_if_readable(self, run_id: str) -> None:
        try:
            self.collect(run_id)
        except Conflict as error:  # another version's: no reason to keep the other Runs waiting
            log.error("run_not_collected", run_id=run_id, error=str(error))

    def collect(self, run_id: str) -> None:
        """Conclude what waits of the Run's events now."""
        while True:
            try:
                turn = self._queues.turn(run_id)
                if turn.events:
                    self._push(self._queues.conclude(run_id, conclusion_of(turn)))
                if turn.run.sweeping:
                    self._push(self._queues.sweep(run_id))
                return
            except Overtaken:  # another collector was quicker: look again
                continue


def conclusion_of(turn: Turn) -> Conclusion:
    sampler = Sampler(turn.run.settings, turn.run.state)
    decisions = [decision for event in turn.events for decision in sampler.handle(event)]
    return Conclusion(
        after=turn.run.concluded,
        events=len(turn.events),
        state=sampler.state,
        decisions=decisions,
    )
