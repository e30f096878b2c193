"""The collector: feeds the events of every Run to its sampler and carries out what it decides.

- Owns no state: the sampler's is stored with each conclusion, so that a restart goes on with the
  first event not concluded. Two collectors may run: a conclusion from an outdated state is refused.
- Events that wait together are concluded together.
- Leases that a decision ends are pushed to their servers; the next heartbeat repeats it.
"""

import threading
from collections.abc import Callable

import structlog

from orchestrator.queues.contract import Conclusion, Queues
from orchestrator.sampler import Sampler
from rollyard.errors import Conflict, QueueUnavailable
from rollyard.messages import Lease

log = structlog.get_logger()


class Collector:
    def __init__(self, queues: Queues, stop: Callable[[Lease], None]) -> None:
        self._queues = queues
        self._stop = stop

    def run(self, stopping: threading.Event) -> None:
        """Collect until `stopping` is set."""
        fresh = True
        while not stopping.is_set():
            try:
                if fresh:  # what a predecessor left, or what an outage interrupted
                    for run_id in self._queues.run_ids():
                        self.collect(run_id)
                    fresh = False
                run_id_or_none = self._queues.wait_for_events(seconds=5)
                if run_id_or_none is not None:
                    self.collect(run_id_or_none)
            except QueueUnavailable as error:
                log.warning("collector_waits_for_redis", error=error.message)
                fresh = True
                stopping.wait(0.5)

    def collect(self, run_id: str) -> None:
        """Conclude every waiting event of the Run."""
        # The state first: if another collector concludes between the two reads, its events are gone
        # from the list, and a conclusion from the older state is refused.
        while (run := self._queues.run(run_id)).events_waiting:
            events = self._queues.next_events(run_id)
            sampler = Sampler(run.settings, run.state)
            decisions = [decision for event in events for decision in sampler.handle(event)]
            conclusion = Conclusion(
                after=run.concluded, events=len(events), state=sampler.state, decisions=decisions
            )
            try:
                ended = self._queues.conclude(run_id, conclusion)
            except Conflict:  # another collector was quicker: look again
                continue
            for lease in ended:
                self._stop(lease)
