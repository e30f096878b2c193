"""The trainer's side of Rollyard: pass the dataloader once, then ask for Batches.

run = Client("http://127.0.0.1:8005").run(dataloader, run_id="my-run", group_size=8)
batch = run.rollout(requested_batch_size=16)
...                                   # train on it
run.update_weights("/path/to/checkpoint", version=1)
run.ack(batch)
"""

import logging
import secrets
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from rollyard.backoff import Backoff
from rollyard.errors import (
    Conflict,
    DeadlineExceeded,
    OrchestratorUnavailable,
    PromptsExhausted,
    Unavailable,
)
from rollyard.feeder import Feeder, Row
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    Batch,
    BatchRequest,
    Criterion,
    Limits,
    Occupancy,
    Prompt,
    RunSettings,
    RunStatus,
    Sampling,
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
    YardStatus,
)
from rollyard.tokens import tokens_for

log = logging.getLogger(__name__)

T = TypeVar("T")

WEIGHT_SECONDS = 660.0
"""A little more than the orchestrator itself waits for the LLM servers."""


class Client:
    """A connection to one orchestrator. Calls are repeated while it is away, up to
    `patience_seconds`; then they raise `OrchestratorUnavailable`.

    It shows `token`, or the one in `token_file` that may do most. Given neither, it looks for a
    file as `rollyard.tokens.tokens_for` says: that of a `rollyard up` here is found.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        patience_seconds: float = 60.0,
    ) -> None:
        self._patience_seconds = patience_seconds
        if not token:
            token = tokens_for(url, None if token_file is None else Path(token_file)).widest
        self._peer = Peer(
            url, name="orchestrator", token=token, unreachable=OrchestratorUnavailable
        )

    def run(
        self,
        dataloader: Iterable[Row | Iterable[Row]],
        *,
        run_id: str,
        group_size: int = 8,
        criterion: Criterion = Criterion.REWARD_SPREAD,
        sampling: Sampling | None = None,
        limits: Limits | None = None,
        look_ahead_jobs: int = 1,
        max_infra_failures: int = 6,
    ) -> "TrainingRun":
        """Create the Run, or go on with it. The dataloader yields rows, or lists of rows.

        `rollyard.messages.RunSettings` says what each setting means. For Jobs of seconds rather
        than minutes, let `look_ahead_jobs` be an eighth of the Slots: agent servers then take
        Jobs ahead.

        Raises `InvalidMessage` for settings that make no sense and `Conflict` if the Run exists
        with other settings.
        """
        settings = RunSettings(
            run_id=run_id,
            group_size=group_size,
            criterion=criterion,
            sampling=sampling or Sampling(),
            limits=limits or Limits(),
            look_ahead_jobs=look_ahead_jobs,
            max_infra_failures=max_infra_failures,
        )
        self.call(lambda peer: peer.post("/runs", settings, RunStatus))
        return TrainingRun(self, run_id, dataloader, group_size)

    def status(self) -> YardStatus:
        return self.call(lambda peer: peer.get("/status", YardStatus))

    def occupancy(self) -> Occupancy:
        """Busy Slots over time, for plots."""
        return self.call(lambda peer: peer.get("/occupancy", Occupancy))

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """Load the checkpoint at `path` on every LLM server as `version`.

        Running generations pause and go on under the new weights. Every token of a Trajectory
        names the version that sampled it.
        """
        update = WeightUpdate(path=str(path), version=version)
        return self.call(
            lambda peer: peer.post("/weights", update, WeightReport, timeout_seconds=WEIGHT_SECONDS)
        )

    def weight_version(self) -> int:
        """The version that the LLM servers serve now; a trainer's first update goes beyond it."""
        return self.call(lambda peer: peer.get("/weights", WeightVersion)).version

    def call(self, work: Callable[[Peer], T]) -> T:
        """`work`, repeated while the orchestrator is away. All of its calls may be repeated."""
        patience = Backoff(longest_seconds=2.0, total_seconds=self._patience_seconds)
        delays = patience.delays()
        while True:
            try:
                return work(self._peer)
            except Unavailable as error:
                delay = next(delays, None)
                if delay is None:
                    raise
                log.info("trying again in %.1f s: %s", delay, error)
                time.sleep(delay)


class TrainingRun:
    """One Run, as its trainer drives it. Not for use by several threads at once."""

    def __init__(
        self,
        client: Client,
        run_id: str,
        dataloader: Iterable[Row | Iterable[Row]],
        group_size: int = 1,
    ) -> None:
        self.run_id = run_id
        self._client = client
        self._feeder = Feeder(dataloader, group_size, self._post)
        self._acknowledged = ""
        """The last Batch that was."""

    def rollout(
        self,
        requested_batch_size: int,
        *,
        on_progress: Callable[[RunStatus], None] = lambda _: None,
        timeout_seconds: float = 86400.0,
    ) -> Batch:
        """Exactly `requested_batch_size` effective Groups.

        Feeds Prompts from the dataloader, as few as will do, as the task queue runs dry. A Batch
        that was delivered but never acknowledged is returned again.

        Raises `PromptsExhausted` when the dataloader ends too early and `DeadlineExceeded` after
        `timeout_seconds`; both say what was missing. Raises `Conflict` when the Run is closed.
        """
        status = self._request(requested_batch_size)
        deadline = time.monotonic() + timeout_seconds
        while not status.batch_ready:
            on_progress(status)
            if status.batch_id is None:
                raise Conflict(
                    f"the batch that run {self.run_id!r} waited for is gone: {status.waiting_for}",
                    fix="only one trainer at a time may drive a run; did another close it?",
                )
            if self._feeder.exhausted and status.idle:
                raise PromptsExhausted(
                    f"the dataloader ended with {status.effective_groups} of "
                    f"{status.requested_batch_size} effective groups",
                    fix="pass an endless dataloader (cycle it), or request fewer groups",
                )
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"no batch after {timeout_seconds:g} s; waiting for {status.waiting_for}"
                )
            self._feeder.feed(status.prompts_wanted)
            status = self._reconciled(self.status(wait_seconds=1.0))
        on_progress(status)
        return self._client.call(
            lambda peer: peer.get(f"/runs/{self.run_id}/batches/{status.batch_id}", Batch)
        )

    def ack(self, batch: Batch) -> None:
        """The Batch was consumed: it will not be delivered again."""
        path = f"/runs/{self.run_id}/batches/{batch.batch_id}/ack"
        self._client.call(lambda peer: peer.post(path, None, Accepted))
        self._acknowledged = batch.batch_id
        self._feeder.done({group.prompt.prompt_id for group in batch.groups})

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """As `Client.update_weights`."""
        return self._client.update_weights(path, version)

    def weight_version(self) -> int:
        """As `Client.weight_version`."""
        return self._client.weight_version()

    def score(self, token_ids: "array[int]") -> "dict[str, array[float]]":
        """LLM server URL -> logprob of each token under its weights now; entry 0 is 0.0.

        Compare with the trainer's own after every weight update: they must agree.
        """
        request = ScoreRequest(token_ids=token_ids)
        return self._client.call(lambda peer: peer.post("/score", request, Scores)).logprobs

    def status(self, wait_seconds: float = 0.0) -> RunStatus:
        """The Run's status; waits up to `wait_seconds` for Prompts to be wanted or a Batch."""
        path = f"/runs/{self.run_id}?wait_seconds={wait_seconds}"
        return self._client.call(
            lambda peer: peer.get(path, RunStatus, timeout_seconds=wait_seconds + 30)
        )

    def close(self) -> RunStatus:
        """Stop and forget everything unfinished."""
        return self._client.call(
            lambda peer: peer.post(f"/runs/{self.run_id}/close", None, RunStatus)
        )

    def _request(self, requested_batch_size: int) -> RunStatus:
        status = self._reconciled(self.status())
        if status.batch_id is not None and status.batch_id == self._acknowledged:
            raise Conflict(
                f"run {self.run_id!r} has forgotten that batch {status.batch_id!r} was "
                "acknowledged, and would deliver again what was trained on: its Redis lost what "
                "it had not written to disk",
                fix="go on with a new run_id, and with a Redis whose appendfsync is always",
            )
        if status.batch_id is not None:  # asked for by an earlier process of this trainer
            return status
        request = BatchRequest(
            batch_id=f"batch-{secrets.token_hex(8)}", requested_batch_size=requested_batch_size
        )
        return self._client.call(
            lambda peer: peer.post(f"/runs/{self.run_id}/batches", request, RunStatus)
        )

    def _reconciled(self, status: RunStatus) -> RunStatus:
        """The status, once the Run has all again that it was fed and may have forgotten."""
        while again := self._feeder.feed_again(status.counters.jobs_submitted):
            log.warning(
                "run %r has forgotten jobs: its Redis lost what it had not written to disk; the "
                "last %d prompts were fed again, and those that were missing are queued",
                self.run_id,
                again,
            )
            status = self.status()
        return status

    def _post(self, prompts: Sequence[Prompt]) -> None:
        path = f"/runs/{self.run_id}/prompts"
        self._client.call(lambda peer: peer.post(path, prompts, Accepted))
