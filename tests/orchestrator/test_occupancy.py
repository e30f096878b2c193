"""The history of busy Slots."""

import threading

from orchestrator.loops import run_through_outages
from orchestrator.occupancy import OccupancyHistory
from orchestrator.queues import Queues
from orchestrator.queues.servers import Servers
from rollyard.errors import QueueUnavailable
from rollyard.messages import AgentServer
from tests.queue_fixtures import QueueMaker
from tests.waiting import until


class AwayAtFirst(Servers):
    """Cannot be reached when they are asked for the first time."""

    outages = 1

    def busy_slots(self) -> dict[str, int]:
        if self.outages:
            self.outages -= 1
            raise QueueUnavailable("Redis is away")
        return super().busy_slots()


def test_the_history_goes_on_after_an_outage(make_queues: QueueMaker, server: AgentServer) -> None:
    servers = AwayAtFirst(make_queues(Queues).connection, lease_seconds=60.0)
    servers.register(server)
    history, stopping = OccupancyHistory(servers), threading.Event()
    recorder = threading.Thread(
        target=run_through_outages, args=(history.run, stopping), daemon=True
    )
    recorder.start()
    until("a point is recorded", lambda: history.read().points)
    stopping.set()
    assert [point.busy for point in history.read().points] == [{"agent-0": 0}]
