"""The collector concludes what happened, also what an outage of the queues interrupted."""

import threading
import time
from collections.abc import Callable

from orchestrator.collector import Collector
from orchestrator.events import AnyEvent
from orchestrator.queues.memory_queues import MemoryQueues
from rollyard.errors import QueueUnavailable
from rollyard.messages import Prompt, RunSettings


class FailsOnce(MemoryQueues):
    """Away when it is first asked for an event that is there."""

    outages = 1

    def next_event(self, run_id: str) -> AnyEvent | None:
        event = super().next_event(run_id)
        if event is not None and self.outages:
            self.outages -= 1
            raise QueueUnavailable("Redis is away")
        return event


def test_an_event_that_an_outage_interrupted_is_concluded_without_another_one(
    settings: RunSettings, prompt: Callable[[str], Prompt]
) -> None:
    queues = FailsOnce()
    queues.create_run(settings)
    stopping = threading.Event()
    collector = Collector(queues, lambda _: None)
    threading.Thread(target=collector.run, args=(stopping,), daemon=True).start()
    try:
        queues.submit("train", prompt("p0"))
        deadline = time.monotonic() + 4
        while queues.run("train").events_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert queues.run("train").state.open == {"p0": {}}
    finally:
        stopping.set()
