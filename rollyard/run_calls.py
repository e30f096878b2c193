"""The routes of one Run as its trainer calls them, one method a route.

Safe to share between threads.
"""

from collections.abc import Sequence

from rollyard.connection import Connection
from rollyard.messages import Accepted, Batch, BatchRequest, Prompt, RunStatus

LOOK_SECONDS = 1.0
"""How long the orchestrator keeps a call waiting that asks what to do next."""
ANSWER_SECONDS = 30.0
"""How much later than that it may answer."""


class RunCalls:
    def __init__(self, connection: Connection, run_id: str) -> None:
        self.run_id = run_id
        self._connection = connection
        self._run = f"/runs/{run_id}"

    def status(self) -> RunStatus:
        return self._look(self._run)

    def news(self, batch_id: str, *, exhausted: bool) -> RunStatus:
        """The status once the Batch is complete or there is something to do for it; at the latest
        after `LOOK_SECONDS`."""
        return self._look(
            f"{self._run}?wait_seconds={LOOK_SECONDS}&batch={batch_id}"
            f"&exhausted={'true' if exhausted else 'false'}"
        )

    def request(self, request: BatchRequest) -> RunStatus:
        path = f"{self._run}/batches"
        return self._connection.call(lambda peer: peer.post(path, request, RunStatus))

    def fetch(self, batch_id: str) -> Batch:
        path = f"{self._run}/batches/{batch_id}"
        return self._connection.call(lambda peer: peer.get(path, Batch))

    def acknowledge(self, batch_id: str) -> None:
        path = f"{self._run}/batches/{batch_id}/ack"
        self._connection.call(lambda peer: peer.post(path, None, Accepted))

    def feed(self, prompts: Sequence[Prompt]) -> None:
        path = f"{self._run}/prompts"
        self._connection.call(lambda peer: peer.post(path, prompts, Accepted))

    def prompts(self) -> set[str]:
        """Ids of the Prompts that the Run still has: waiting, being sampled, or in a Batch."""
        path = f"{self._run}/prompts"
        return set(self._connection.call(lambda peer: peer.get(path, list[str])))

    def close(self) -> RunStatus:
        path = f"{self._run}/close"
        return self._connection.call(lambda peer: peer.post(path, None, RunStatus))

    def _look(self, path: str) -> RunStatus:
        seconds = LOOK_SECONDS + ANSWER_SECONDS
        return self._connection.call(
            lambda peer: peer.get(path, RunStatus, timeout_seconds=seconds)
        )
