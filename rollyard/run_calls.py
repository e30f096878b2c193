"""The routes of one Run as its trainer calls them, one method a route.

Each names the trainer's epoch: it raises `TrainerReplaced` once another trainer drives the Run.
Safe to share between threads.
"""

import os
import secrets
import socket
from collections.abc import Sequence
from typing import Self

from rollyard.connection import Connection
from rollyard.messages import (
    Accepted,
    Batch,
    BatchRequest,
    Claim,
    Prompt,
    RunStatus,
    SignOfLife,
    Trainer,
    WeightReport,
    WeightUpdate,
)
from rollyard.weights import UPDATE_SECONDS

LOOK_SECONDS = 1.0
"""How long the orchestrator keeps a call waiting that asks what to do next."""
ANSWER_SECONDS = 30.0
"""How much later than that it may answer."""


class RunCalls:
    def __init__(self, connection: Connection, run_id: str, epoch: int) -> None:
        self.run_id = run_id
        self._connection = connection
        self._run = f"/runs/{run_id}"
        self._epoch_number = epoch
        self._epoch = f"epoch={epoch}"

    @classmethod
    def take_over(cls, connection: Connection, run_id: str) -> Self:
        """Drive the Run from now on, and nobody else."""
        trainer = Trainer(
            trainer_id=secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid()
        )
        path = f"/runs/{run_id}/trainer"
        claim = connection.call(lambda peer: peer.post(path, trainer, Claim))
        return cls(connection, run_id, claim.epoch)

    def heard(self, *, leaving: bool = False) -> None:
        """The trainer lives, or goes."""
        sign = SignOfLife(epoch=self._epoch_number, leaving=leaving)
        path = f"{self._run}/trainer/heard"
        self._connection.call(lambda peer: peer.post(path, sign, Accepted))

    def status(self) -> RunStatus:
        return self._look(f"{self._run}?{self._epoch}")

    def news(self, batch_id: str, *, exhausted: bool) -> RunStatus:
        """The status once the Batch is complete or there is something to do for it; at the latest
        after `LOOK_SECONDS`."""
        return self._look(
            f"{self._run}?wait_seconds={LOOK_SECONDS}&batch={batch_id}"
            f"&exhausted={'true' if exhausted else 'false'}&{self._epoch}"
        )

    def request(self, request: BatchRequest) -> RunStatus:
        path = f"{self._run}/batches?{self._epoch}"
        return self._connection.call(lambda peer: peer.post(path, request, RunStatus))

    def fetch(self, batch_id: str) -> Batch:
        path = f"{self._run}/batches/{batch_id}?{self._epoch}"
        return self._connection.call(lambda peer: peer.get(path, Batch))

    def acknowledge(self, batch_id: str) -> None:
        path = f"{self._run}/batches/{batch_id}/ack?{self._epoch}"
        self._connection.call(lambda peer: peer.post(path, None, Accepted))

    def feed(self, prompts: Sequence[Prompt]) -> None:
        path = f"{self._run}/prompts?{self._epoch}"
        self._connection.call(lambda peer: peer.post(path, prompts, Accepted))

    def prompts(self) -> set[str]:
        """Ids of the Prompts that the Run still has: waiting, being sampled, or in a Batch."""
        path = f"{self._run}/prompts?{self._epoch}"
        return set(self._connection.call(lambda peer: peer.get(path, list[str])))

    def retry(self) -> RunStatus:
        """Go on though Groups died one after the other."""
        path = f"{self._run}/retry?{self._epoch}"
        return self._connection.call(lambda peer: peer.post(path, None, RunStatus))

    def close(self) -> RunStatus:
        path = f"{self._run}/close?{self._epoch}"
        return self._connection.call(lambda peer: peer.post(path, None, RunStatus))

    def update_weights(self, update: WeightUpdate) -> WeightReport:
        path = f"{self._run}/weights?{self._epoch}"
        return self._connection.call(
            lambda peer: peer.post(path, update, WeightReport, timeout_seconds=UPDATE_SECONDS)
        )

    def _look(self, path: str) -> RunStatus:
        seconds = LOOK_SECONDS + ANSWER_SECONDS
        return self._connection.call(
            lambda peer: peer.get(path, RunStatus, timeout_seconds=seconds)
        )
