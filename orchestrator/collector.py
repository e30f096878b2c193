"""The collector: passes the events of every Run to its sampler and carries out its decisions.

- Owns no state but the names of the Runs set aside: the sampler's is stored with each conclusion,
  so that a restart continues with the first event not concluded. Two collectors may run: what is
  concluded from an outdated state is refused.
- Events that wait together are concluded together. Runs take turns: a Run with further events
  queues up again.
- A Run whose events cannot be concluded is set aside, named, and retried; the others continue.
- A closed Run is swept in slices, one a turn, until nothing of it is left.
- Consequences for running Jobs are pushed to their servers; the answers to heartbeats repeat them.
- Only a Run's first waiting event wakes a collector. If that collector dies, another one looks at
  all Runs within `LOOK_AROUND_SECONDS`.
"""

import threading
import time
from collections.abc import Callable, Iterator

import structlog

from orchestrator.queues.conclusions import Conclusion, Moved
from orchestrator.queues.events import Events, PendingEvents
from orchestrator.queues.runs import Runs
from orchestrator.sampling.sampler import Sampler
from rollyard.errors import NotFound, Overtaken, QueueDamaged, QueueUnavailable, RollyardError

log = structlog.get_logger()

LOOK_AROUND_SECONDS = 5.0


class Collector:
    def __init__(self, events: Events, runs: Runs, push: Callable[[Moved], None]) -> None:
        self._events = events
        self._runs = runs
        self._push = push
        self._aside: dict[str, str] = {}
        """Run -> the error that keeps its events from being concluded; retried regularly."""

    def run(self, stopping: threading.Event) -> None:
        """Collect until `stopping` is set."""
        look_around_at = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() >= look_around_at:
                for run_id in self._runs.ids():
                    self._collect_or_set_aside(run_id)
                look_around_at = time.monotonic() + LOOK_AROUND_SECONDS
            woken_by = self._events.wait(max(0.0, look_around_at - time.monotonic()))
            if woken_by is not None and woken_by not in self._aside:
                self._collect_or_set_aside(woken_by)

    def _collect_or_set_aside(self, run_id: str) -> None:
        """Conclude a Run's events, or set the Run aside, so that it holds up no other."""
        try:
            self.collect(run_id)
        except NotFound:  # it was forgotten meanwhile
            self._aside.pop(run_id, None)
        except RollyardError as error:
            if isinstance(error, QueueUnavailable) and not isinstance(error, QueueDamaged):
                raise
            if self._aside.get(run_id) != error.message:
                log.error("run_set_aside", run_id=run_id, error=error.message)
                self._events.set_aside(run_id, error.message)
                self._aside[run_id] = error.message
        else:
            self._aside.pop(run_id, None)

    def collect(self, run_id: str) -> None:
        """Conclude the Run's events that wait now."""
        for moved in self._take_turn(run_id):
            self._push(moved)

    def _take_turn(self, run_id: str) -> Iterator[Moved]:
        while True:
            try:
                turn = self._events.pending(run_id)
                if turn.events:
                    yield self._events.conclude(run_id, conclusion_of(turn))
                if turn.run.sweeping:
                    yield self._events.sweep(run_id)
                if turn.run.set_aside:
                    self._events.take_up_again(run_id)
                return
            except Overtaken:  # another collector was quicker: look again
                continue


def conclusion_of(turn: PendingEvents) -> Conclusion:
    """The conclusion of the events. Raises `QueueDamaged` for a state that the sampler cannot have
    left."""
    sampler = Sampler(turn.run.settings, turn.run.state)
    try:
        decisions = [decision for event in turn.events for decision in sampler.handle(event)]
    except RollyardError:
        raise
    except Exception as error:
        log.exception("sampler_failed", run_id=turn.run.settings.run_id)
        raise QueueDamaged(f"the sampler's state does not go with its events: {error!r}") from error
    return Conclusion(
        after=turn.run.concluded,
        events=len(turn.events),
        state=sampler.state,
        decisions=decisions,
    )
