"""Requests of trainers, and the long poll by which they wait.

A call with an `epoch` comes from the trainer that got it from `claim_run`. Once another trainer has
taken the Run over, it raises `TrainerReplaced` and changes nothing. A call without an epoch comes
from an operator.
"""

import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from orchestrator.demand import prompts_to_feed
from orchestrator.events import BatchAcknowledged, BatchRequested, RunRetried
from orchestrator.failing import failing
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.queues.runs import Run, run_is_closed
from orchestrator.queues.tasks import MAX_QUEUED_JOBS
from orchestrator.run_status import has_batch, is_idle, status_of, status_of_broken
from orchestrator.shared_looks import SharedLooks
from orchestrator.turns import Turns
from orchestrator.why_weights import why_another_model
from rollyard.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidMessage,
    NotFound,
    Unavailable,
)
from rollyard.messages import (
    Batch,
    BatchRequest,
    Claim,
    Epoch,
    Name,
    PackedBatch,
    Prompt,
    RunSettings,
    RunStatus,
    SignOfLife,
    Trainer,
    WaitSeconds,
    check_name,
)
from rollyard.messages.run import MAX_NESTED, nested_deeper
from serving.declaration import OnWire

MAX_OUTSTANDING = 8
"""Maximum number of outstanding Batches of a Run, whatever its `max_staleness`."""
CONCLUDE_SECONDS = 15.0
"""Time for the collector to conclude a trainer's request."""


class _Seen(msgspec.Struct, frozen=True):
    """The read of a Run that waiting calls share."""

    run: Run
    prompts_wanted: int


class Trainers:
    """The trainer's side of all Runs. It owns the waiting calls; all other state is in the
    queues."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._operators = Operators(queues)
        self._looks = SharedLooks(self._look, queues.runs.wait_for_news)
        self._turns = Turns()

    def create_run(self, settings: RunSettings) -> RunStatus:
        """Create a Run; one that exists with the same settings is left as it is. Raises `Conflict`
        for other settings, and for a Run that began with another model than the servers have."""
        self._queues.runs.create(settings)
        self._check_model(self._queues.runs.read(settings.run_id))
        return self.run_status(settings.run_id)

    def claim_run(self, run_id: Name, trainer: Trainer) -> Claim:
        """Take a Run over; calls that name the epoch of an earlier trainer are refused from now
        on."""
        return Claim(epoch=self._queues.epochs.claim(run_id, trainer))

    def trainer_heard(self, run_id: Name, sign: SignOfLife) -> None:
        """Sign of life of a trainer, whose parked Jobs keep their Slots unless it is `leaving`."""
        self._queues.epochs.heard(run_id, sign.epoch, leaving=sign.leaving)

    def feed(self, run_id: Name, prompts: list[Prompt], *, epoch: Epoch | None = None) -> None:
        """Put the Prompts' Jobs on the task queue, all or none; a Prompt fed again changes nothing.

        Jobs whose environment or tags no agent server has wait for one. Raises `InvalidMessage` for
        a Prompt that cannot run anywhere, and `Unavailable` while no agent server has registered.
        """
        if not self._queues.servers.registered():
            raise Unavailable("no agent server has registered")
        for prompt in prompts:
            # Checked here and not in `Prompt`, which every hop decodes again: rows can be large.
            if nested_deeper(prompt.instance, MAX_NESTED):
                raise InvalidMessage(
                    f"prompt {prompt.prompt_id!r} is nested more than {MAX_NESTED} deep",
                    fix="keep what is nested so deeply as text",
                )
        self._queues.tasks.submit(run_id, prompts, epoch=epoch, max_queued=MAX_QUEUED_JOBS)

    def request_batch(
        self, run_id: Name, request: BatchRequest, *, epoch: Epoch | None = None
    ) -> RunStatus:
        """Request a Batch; requesting it again changes nothing, even once it is acknowledged.
        Raises `Conflict` if too many are outstanding."""
        self._queues.epochs.check(run_id, epoch)
        run = self._queues.runs.read(run_id)
        if run.state.closed:
            raise run_is_closed(run_id)
        self._check_model(run)
        name = request.batch_id
        if not run.state.knows(name):
            _check_outstanding(run)
            version = request.weight_version
            if version is None:
                version = self._queues.weights.version() + len(run.state.outstanding)
            requested = BatchRequested(
                batch_id=name,
                requested_batch_size=request.requested_batch_size,
                weight_version=version,
                begun=self._queues.leases.begun(run_id),
            )
            self._queues.events.tell(run_id, requested, epoch=epoch)
            self._until(run_id, "the request to be taken", lambda run: run.state.knows(name))
        return self.run_status(run_id)

    def retry_run(self, run_id: Name, *, epoch: Epoch | None = None) -> RunStatus:
        """Continue a Run whose Groups died one after the other: it wants Prompts again."""
        self._queues.events.tell(run_id, RunRetried(), epoch=epoch)
        # What waits beside it, or comes after it, may be deaths again.
        told = self._queues.runs.read(run_id)
        events = told.concluded + told.events_waiting
        self._until(run_id, "the run to go on", lambda run: run.concluded >= events)
        return self.run_status(run_id)

    def prompts(self, run_id: Name, *, epoch: Epoch | None = None) -> list[str]:
        """Ids of the Prompts fed that are neither dropped nor in an acknowledged Batch."""
        self._queues.epochs.check(run_id, epoch)
        return self._queues.tasks.prompts(run_id)

    def run_status(
        self,
        run_id: Name,
        *,
        wait_seconds: WaitSeconds = 0.0,
        batch: Name | None = None,
        exhausted: bool = False,
        epoch: Epoch | None = None,
    ) -> RunStatus:
        """Status of a Run, after `wait_seconds`, or once it wants a Prompt (with `exhausted`: once
        nothing of it runs) or has a Batch (with `batch`: has that one, or no longer)."""
        if batch is not None:
            check_name(batch, "batch")

        def reached(seen: _Seen) -> bool:
            if epoch is not None and seen.run.epoch not in (None, epoch):
                raise self._queues.epochs.why_not_driven(run_id)
            to_do = is_idle(seen.run) if exhausted else seen.prompts_wanted
            return bool(to_do or failing(seen.run) or has_batch(seen.run.state, batch))

        deadline = time.monotonic() + wait_seconds
        if epoch is None and wait_seconds > 0:  # any number of these cost as much as one
            self._turns.wait(run_id, wait_seconds)
        seen = self._looks.wait(run_id, deadline - time.monotonic(), reached)
        return status_of(seen.run, self._operators.fleet())

    def fetch_batch(
        self, run_id: Name, batch_id: Name, *, epoch: Epoch | None = None
    ) -> Annotated[PackedBatch, OnWire(Batch)]:
        """A complete Batch; it can be fetched again until it is acknowledged."""
        self._queues.epochs.check(run_id, epoch)
        run = self._queues.runs.read(run_id)
        if batch_id not in run.state.outstanding:
            raise NotFound(f"run {run_id!r} has no batch {batch_id!r}, or it was acknowledged")
        if batch_id not in run.state.delivered:
            raise NotFound(
                f"batch {batch_id!r} of run {run_id!r} is not complete",
                fix="wait until the run's status says batch_ready",
            )
        return PackedBatch(
            batch_id=batch_id,
            run_id=run_id,
            groups=self._queues.batches.groups(run_id, batch_id),
            counters=run.counters,
            report=self._queues.batches.report(run_id, batch_id),
        )

    def acknowledge_batch(
        self, run_id: Name, batch_id: Name, *, epoch: Epoch | None = None
    ) -> None:
        """Acknowledge a Batch that was trained on; acknowledging again changes nothing. Raises
        `Conflict` for a Batch that is not delivered yet."""
        self._queues.epochs.check(run_id, epoch)
        state = self._queues.runs.read(run_id).state
        if batch_id not in state.outstanding:
            return
        if batch_id not in state.delivered:
            raise Conflict(f"batch {batch_id!r} of run {run_id!r} was not delivered yet")
        self._queues.events.tell(run_id, BatchAcknowledged(batch_id=batch_id), epoch=epoch)
        self._until(
            run_id,
            "the acknowledgement to be taken",
            lambda run: batch_id not in run.state.delivered,
        )

    def close_run(self, run_id: Name, *, epoch: Epoch | None = None) -> RunStatus:
        """Drop all unfinished work of a Run for good; closing again changes nothing."""
        self._queues.runs.read(run_id)
        self._queues.events.close(run_id, epoch=epoch)
        self._until(
            run_id, "the run to be closed", lambda run: run.state.closed and not run.sweeping
        )
        return self.run_status(run_id)

    def statuses(self) -> tuple[RunStatus, ...]:
        """Status of all Runs; that of a Run that cannot be read says so."""
        runs, fleet = self._queues.runs.read_all(), self._operators.fleet()
        found = [status_of(run, fleet) for run in runs.readable]
        found += [status_of_broken(run_id, error) for run_id, error in runs.broken.items()]
        return tuple(sorted(found, key=lambda status: status.run_id))

    def _check_model(self, run: Run) -> None:
        serving = self._queues.connection.ask(self._queues.weights.serving())
        problem = why_another_model(run, serving)
        if problem:
            raise Conflict(problem)

    def _look(self, run_id: str) -> _Seen:
        queues = self._queues
        run, offer = queues.connection.ask_together(queues.runs.run(run_id), queues.servers.offer())
        return _Seen(run, prompts_to_feed(run, offer) if offer.slots else 0)

    def _until(self, run_id: str, what: str, reached: Callable[[Run], bool]) -> None:
        deadline = time.monotonic() + CONCLUDE_SECONDS
        while not reached(self._queues.runs.read(run_id)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"run {run_id!r} waited {CONCLUDE_SECONDS:g} s for {what}",
                    fix="the orchestrator's log says what its collector is doing",
                )
            # Another waiting call may have consumed the wake-up, so look again once a second.
            self._queues.events.wait_for_conclusion(run_id, min(left, 1.0))


def _check_outstanding(run: Run) -> None:
    """Raise `Conflict` if the Run has as many outstanding Batches as it may have."""
    settings, outstanding = run.settings, run.state.outstanding
    most = min(settings.max_staleness + 1, MAX_OUTSTANDING)
    if len(outstanding) >= most:
        raise Conflict(
            f"batch {outstanding[0]!r} of run {settings.run_id!r} is not acknowledged, and at most "
            f"{most} may be outstanding with max_staleness {settings.max_staleness}",
            fix="fetch it, train on it and ack it before you request the next one",
        )
