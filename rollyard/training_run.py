"""One Run as its trainer drives it: request Batches, fetch them, acknowledge them."""

import logging
import secrets
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from rollyard import feeder
from rollyard.api import RunAPI
from rollyard.batch_errors import forgotten, why_in_vain, why_too_new
from rollyard.errors import DeadlineExceeded
from rollyard.feeder import Feeder
from rollyard.feeding_ahead import FeedingAhead
from rollyard.keep_alive import KeepAlive
from rollyard.messages import (
    Batch,
    LogprobArray,
    RunSettings,
    RunStatus,
    TokenArray,
    WeightReport,
)
from rollyard.never_offered import NEVER_OFFERED_SECONDS, Patience
from rollyard.progress import ShowProgress, watched
from rollyard.rows import Row

log = logging.getLogger(__name__)


class TrainingRun:
    """A Run, driven by this trainer until another one calls `Client.run` for it. After that every
    call raises `TrainerReplaced`, which names the other one, and changes nothing. A Run that was
    forgotten raises `NotFound`; see `Client` for what all calls may raise.

    Leaving its `with` leaves the Run: parked Jobs give up their Slots and are requeued, and the
    Run keeps all it has for the next trainer. If an error ended the `with`, they keep their Slots
    until another Run waits for some.

    Call `request` and `rollout` from one thread at a time, and everything else from any thread. A
    Run has a thread that sends signs of life, and a second one while a Batch requested ahead is
    sampled."""

    def __init__(
        self,
        api: RunAPI,
        settings: RunSettings,
        dataloader: Iterable[Row | Iterable[Row]],
        *,
        show_progress: bool = False,
        never_offered_seconds: float | None = NEVER_OFFERED_SECONDS,
    ) -> None:
        self.run_id = api.run_id
        self.settings = settings
        self._api = api
        self.show_progress = show_progress
        self._never_offered_seconds = never_offered_seconds
        self._feeder = Feeder(dataloader, api.feed)
        self._ahead = FeedingAhead(f"feed-{self.run_id}", self._feed_ahead)
        self._alive = KeepAlive(f"alive-{self.run_id}", api.heard)
        weakref.finalize(self, self._alive.stop)
        self._alive.start()
        self._claimed: set[str] = set()
        """Batches that this process requested, or inherited from an earlier one."""
        self._taken: set[str] = set()
        """Batches that `rollout` has returned and that are not acknowledged yet."""
        self._acknowledged: set[str] = set()
        self._knows_deaths = True
        """True if the trainer was told of all dead Groups, or has just started."""
        self._in_order: set[str] = set()
        """Batches that this process requested, and for which it must publish in order; without
        those that `rollout` refused once."""

    def request(self, requested_batch_size: int) -> str:
        """Request the next Batch and return its id at once. The Batch is sampled, and fed with
        Prompts, while the trainer trains on an earlier one; `rollout` then waits for it.

        At most `max_staleness` + 1 Batches may be requested and not acknowledged; one more raises
        `Conflict`. A Batch that an earlier process of this trainer requested, and did not
        acknowledge, is continued instead, so that a trainer can be restarted with the same code.
        Errors in the meantime, such as the dataloader's, are raised by the next `rollout`; an
        orchestrator that is away is waited for.
        """
        known = self._go_on(self._checked_status()).batches
        inherited = next((batch for batch in known if batch not in self._claimed), None)
        batch_id = inherited or self._new_request(requested_batch_size)[0]
        self._claimed.add(batch_id)
        self._ahead.go_on()
        return batch_id

    def rollout(
        self,
        requested_batch_size: int,
        *,
        on_progress: ShowProgress | None = None,
        timeout_seconds: float = 86400.0,
    ) -> Batch:
        """The oldest requested Batch that was not returned yet, once it is complete. If there is
        none, `requested_batch_size` effective Groups are requested now.

        Feeds Prompts from the dataloader, as few as possible, when the task queue runs dry. Batches
        that an earlier process of this trainer did not acknowledge come first, oldest first. A
        Batch that this process has is returned again unless another was requested. `on_progress`
        is called about every second with the Run's status, and an error it raises ends the wait;
        without it a terminal shows the progress in one line. An interrupted wait loses nothing: the
        next `rollout` waits for the same Batch.

        Raises `PromptsExhausted` if the dataloader ends too early and `DeadlineExceeded` after
        `timeout_seconds`; both say what was missing. Raises `RunFailing` if Groups die one after
        the other, and `NeverOffered` if all that is left needs what no agent server has ever had;
        the next `rollout` continues anyway. Raises `Conflict` if the Run is finished, and
        `WeightMismatch`, once for each Batch that this process requested, if tokens are of newer
        weights than those that it updates. Raises `InvalidMessage`, which names the Job, for a
        trajectory that cannot be trained on.
        """
        watching = watched(on_progress, show_progress=self.show_progress)
        with watching as show, self._ahead.paused():
            batch_id, status = self._next_batch(requested_batch_size)
            status = self._sampled(batch_id, status, show, timeout_seconds)
            show(status)
        if _unfinished(status):
            self._ahead.go_on()
        batch = self._api.fetch(batch_id)
        error = why_too_new(batch)
        if error and batch_id in self._in_order:
            self._in_order.discard(batch_id)
            raise error
        self._claimed.add(batch_id)
        self._taken.add(batch_id)
        return batch

    def batches(self, requested_batch_size: int) -> Iterator[Batch]:
        """An endless iterator over what `rollout` returns, which ends with its first error.
        Acknowledge each Batch before the next, or request the next one ahead."""
        while True:
            yield self.rollout(requested_batch_size)

    def ack(self, batch: Batch) -> None:
        """Acknowledge that the Batch was trained on: it is not delivered again. Acknowledging it
        twice changes nothing.

        Raises `Conflict` for a Batch that was not delivered yet, and `DeadlineExceeded` if the
        orchestrator is too busy, after which the call may be repeated.
        """
        self._api.acknowledge(batch.batch_id)
        self._acknowledged.add(batch.batch_id)
        self._taken.discard(batch.batch_id)
        prompt_ids = {group.prompt.prompt_id for group in batch.groups}
        self._feeder.done(prompt_ids, self._api.prompts())

    def state_dict(self, trained: Sequence[Batch] = ()) -> dict[str, Any]:
        """The state of the feed, for the trainer's own checkpoint: the rows of Prompts that are
        neither trained on nor dropped, and the position of the dataloader. It can be written as
        JSON if the rows and the dataloader's own state can.

        `trained` are Batches that the checkpoint's weights were trained on and that are not
        acknowledged yet: whoever goes on from the checkpoint acknowledges them first.
        """
        done = {group.prompt.prompt_id for batch in trained for group in batch.groups}
        feed = feeder.state_dict(self._feeder.state(lambda: self._api.prompts() - done))
        return {**feed, "trained": [batch.batch_id for batch in trained]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; call it before the first `request` or `rollout`.

        In the Run that the state was taken from, nothing is lost or repeated. A new Run begins with
        the unfinished Prompts and continues the dataloader where it was. The dataloader must have a
        `state_dict` and `load_state_dict` of its own, as torchdata's StatefulDataLoader has, or
        yield the same items in the same order again, of which those drawn before are skipped.

        Raises `InvalidMessage` if this is no such state or does not fit the dataloader, and
        `Conflict` if rows were drawn already.
        """
        feed = dict(state)
        trained = feed.pop("trained", ())  # states of earlier versions have none
        self._feeder.restore(feeder.from_state_dict(feed))
        ready = self.status().batches_ready
        for batch_id in trained:
            if batch_id in ready:
                self._api.acknowledge(batch_id)
                self._acknowledged.add(batch_id)

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """Update the weights as `Client.update_weights` does; refused once another trainer drives
        the Run."""
        return self._api.update_weights(path, version)

    def weights_updated(self, version: int) -> WeightReport:
        """Say that new weights are on the LLM servers, as `Client.weights_updated` does."""
        return self._api.weights_updated(version)

    def weight_version(self) -> int:
        """The highest version ever published, as `Client.weight_version` returns it."""
        return self._api.orchestrator.weight_version()

    def score(self, token_ids: TokenArray) -> dict[str, LogprobArray]:
        """LLM server URL -> log-probabilities of `token_ids` (int32 [tokens]) under the weights
        that it serves now (float32 [tokens]), in nats.

        Entry i is that of token i given all tokens before it, at temperature 1 and without `top_p`;
        entry 0, which has no token before it, is 0.0. After every weight update they must agree
        with the trainer's own.

        Raises `InvalidMessage` for tokens that the model does not have, or too many of them, and
        `LLMUnavailable` or `DeadlineExceeded` if a server does not answer.
        """
        return self._api.orchestrator.score(token_ids)

    def status(self) -> RunStatus:
        """Progress, counters and Batches of the Run. Programs other than its trainer use
        `Client.status`."""
        return self._api.status()

    def finish(self) -> RunStatus:
        """Drop all unfinished work for good, also Batches that are not acknowledged. Nothing is
        sampled under this `run_id` any more. Finishing twice changes nothing."""
        status = self._api.finish()
        self.close()
        return status

    def leave(self) -> None:
        """Give the Slots of parked Jobs, now and later, to other Runs, and stop the threads.
        Nothing of the Run is lost: the next trainer that takes it over continues it."""
        self.close()
        self._api.heard(leaving=True)

    def close(self) -> None:
        """Stop the threads without telling the orchestrator, for which the trainer falls silent, as
        after an error. Closing twice changes nothing."""
        self._alive.stop()
        self._ahead.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.leave()
        else:
            self.close()

    def _next_batch(self, requested_batch_size: int) -> tuple[str, RunStatus]:
        taken = frozenset(self._taken)  # before the status: another thread may acknowledge
        status = self._go_on(self._reconciled(self._checked_status()))
        for batch_id in status.batches:
            if batch_id not in taken:
                return batch_id, status
        if status.batches:
            return status.batches[0], status
        return self._new_request(requested_batch_size)

    def _go_on(self, status: RunStatus) -> RunStatus:
        """The status once the Run wants Prompts again, if the trainer knows why it did not."""
        knows, self._knows_deaths = self._knows_deaths, False
        return self._api.retry() if knows and status.failing else status

    def _new_request(self, requested_batch_size: int) -> tuple[str, RunStatus]:
        batch_id = f"batch-{secrets.token_hex(8)}"
        self._in_order.add(batch_id)
        return batch_id, self._api.request(batch_id, requested_batch_size)

    def _sampled(
        self, batch_id: str, status: RunStatus, show: ShowProgress, timeout_seconds: float
    ) -> RunStatus:
        """The Run's status once the Batch is complete. The caller's thread feeds until then."""
        deadline = time.monotonic() + timeout_seconds
        patience = Patience(self._never_offered_seconds)
        while batch_id not in status.batches_ready:
            show(status)
            in_vain = why_in_vain(status, batch_id, exhausted=self._feeder.exhausted)
            if error := in_vain or patience.end(status):
                self._knows_deaths = bool(status.failing)
                raise error
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"no batch after {timeout_seconds:g} s; waiting for {status.waiting_for}"
                )
            self._feeder.feed(status.prompts_wanted)
            status = self._reconciled(self._news(batch_id))
        return status

    def _checked_status(self) -> RunStatus:
        acknowledged = frozenset(self._acknowledged)  # before the status, as in `_next_batch`
        status = self.status()
        for batch_id in status.batches:
            if batch_id in acknowledged:
                raise forgotten(self.run_id, batch_id)
        return status

    def _feed_ahead(self) -> bool:
        """Feed the Prompts that are wanted now. False if no more can be wanted before the caller's
        thread feeds again."""
        if self._feeder.exhausted:
            return False
        status = self._reconciled(self.status())
        if status.failing:
            return False
        if not (unfinished := _unfinished(status)):
            return False
        if not status.prompts_wanted:
            status = self._reconciled(self._news(unfinished[0]))
        self._feeder.feed(status.prompts_wanted)
        return True

    def _reconciled(self, status: RunStatus) -> RunStatus:
        """The status, once all Prompts that the Run may have forgotten are fed again."""
        while again := self._feeder.feed_again(status.counters.groups_fed):
            log.warning(
                "run %r has forgotten jobs: its Redis lost what it had not written to disk; the "
                "last %d prompts were fed again, and those that were missing are queued",
                self.run_id,
                again,
            )
            status = self.status()
        return status

    def _news(self, batch_id: str) -> RunStatus:
        return self._api.news(batch_id, exhausted=self._feeder.exhausted)


def _unfinished(status: RunStatus) -> tuple[str, ...]:
    """Batches that are still sampled, oldest first."""
    return tuple(batch for batch in status.batches if batch not in status.batches_ready)
