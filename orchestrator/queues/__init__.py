"""The queues of Rollyard, in Redis: their parts, and what they promise together.

- At any moment: submitted = queued + leased + accepted + dead + dropped, for every Run. `Enqueue`
  adds Jobs to both sides; `Retract` moves one from accepted to queued; a parked Job is leased.
- A Lease is the right to report once: its `attempt` rises with every lease of the Job, and a
  report whose Lease is not the one held is refused as stale.
- A free Slot stands on the server-availability queue exactly once. A Slot is freed by the report
  of the attempt that occupied it, also when that report is stale, or by a heartbeat of its server
  that no longer names the attempt.
- An event of a Run and the change it tells of are written together; `conclude` removes events and
  writes everything decided on them together, unless somebody else was quicker.
- Jobs are parked by a conclusion alone, keep Lease and Slot, and go on when the Run is opened.
- An attempt that ended tells the sampler what it cost; one that never began tells nothing.
- Waits return early when woken and at their deadline otherwise; a wake is a hint to look again.
- Every move is one script of `scripts/` (keys are documented in `_common.lua`), so that a kill -9
  anywhere leaves it done or not done. Works with one Redis or Valkey from 7.0 on, not with a
  cluster. Safe to share between threads.
"""

from orchestrator.queues.address import PREFIX
from orchestrator.queues.batches import DeliveredBatches
from orchestrator.queues.connection import RedisConnection
from orchestrator.queues.epochs import Epochs
from orchestrator.queues.events import Events
from orchestrator.queues.jobs import Jobs
from orchestrator.queues.leases import Leases
from orchestrator.queues.limits import (
    DEFAULT_QUARANTINE,
    RETENTION_SECONDS,
    QuarantineSettings,
)
from orchestrator.queues.runs import Runs
from orchestrator.queues.servers import Servers
from orchestrator.queues.store import Store
from orchestrator.queues.tasks import Tasks
from orchestrator.queues.weights import Weights


class Queues:
    def __init__(
        self,
        url: str,
        *,
        password: str = "",
        lease_seconds: float = 30.0,
        prefix: str = PREFIX,
        quarantine: QuarantineSettings = DEFAULT_QUARANTINE,
        retention_seconds: float = RETENTION_SECONDS,
    ) -> None:
        connection = RedisConnection(
            url,
            password=password,
            prefix=prefix,
            quarantine=quarantine,
            retention_seconds=retention_seconds,
        )
        self.connection = connection
        self.store = Store(connection)
        self.runs = Runs(connection)
        self.epochs = Epochs(connection)
        self.tasks = Tasks(connection, self.runs, self.epochs)
        self.servers = Servers(connection, lease_seconds)
        self.leases = Leases(connection, self.runs, lease_seconds)
        self.events = Events(connection, self.runs, self.epochs)
        self.batches = DeliveredBatches(connection)
        self.weights = Weights(connection, self.epochs)
        self.jobs = Jobs(connection, self.runs, lease_seconds)
