"""One Run, as its trainer drives it: request Batches, get them, say which are trained on."""

import logging
import secrets
import time
import weakref
from collections.abc import Iterable, Iterator
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
    BatchRequest,
    LogprobArray,
    RunStatus,
    TokenArray,
    WeightReport,
)
from rollyard.progress import ShowProgress, watched
from rollyard.rows import Row

log = logging.getLogger(__name__)


class TrainingRun:
    """One trainer drives a Run: the last that called `Client.run` for it. The calls of an earlier
    one raise `TrainerReplaced`, which says who drives the Run since when, and change nothing; those
    for a Run that is forgotten raise `NotFound`. What every call raises says `Client`.

    Leaving its `with` leaves the Run: its parked Jobs wait on the task queue instead of on their
    Slots, and all that it has waits for a trainer that goes on. After an error they keep their
    Slots, for a trainer that starts again, until another Run waits for Slots.

    `request` and `rollout` are for one thread at a time; others may call all else meanwhile. A Run
    has a thread of its own that says that the trainer lives, and one while Batches are sampled that
    were requested ahead."""

    def __init__(
        self, api: RunAPI, dataloader: Iterable[Row | Iterable[Row]], *, show_progress: bool = False
    ) -> None:
        self.run_id = api.run_id
        self._api = api
        self._show_progress = show_progress
        self._feeder = Feeder(dataloader, api.feed)
        self._ahead = FeedingAhead(f"feed-{self.run_id}", self._feed_ahead)
        self._alive = KeepAlive(f"alive-{self.run_id}", api.heard)
        weakref.finalize(self, self._alive.stop)
        self._alive.start()
        self._claimed: set[str] = set()
        """Batches that this process requested, or took up from an earlier one."""
        self._taken: set[str] = set()
        """Batches that `rollout` returned and that are not acknowledged."""
        self._acknowledged: set[str] = set()
        self._knows_deaths = True
        """Of Groups that died so far the trainer was told, or it has just started."""
        self._found_newer: set[str] = set()
        """Batches that `rollout` refused once, for tokens newer than the weights they update."""

    def request(self, requested_batch_size: int) -> str:
        """Ask for the next Batch now, and go on: its id. It is sampled, and Prompts are fed to it,
        while the trainer trains on an earlier one; `rollout` then waits for it.

        At most `max_staleness` + 1 Batches may be requested and not acknowledged; one more raises
        `Conflict`. One that an earlier process of this trainer requested, and did not acknowledge,
        is taken up instead of a new one, so that a trainer may start again as it began. What goes
        wrong meanwhile, such as with the dataloader, the next `rollout` raises.
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
        """The oldest Batch requested that was not returned yet, once it is complete; without one,
        exactly `requested_batch_size` effective Groups are requested now.

        Feeds Prompts from the dataloader, as few as will do, as the task queue runs dry. Batches
        that an earlier process of this trainer did not acknowledge come first, oldest first; one
        that this process has is returned again unless another was requested. `on_progress` hears
        about every second how far the Batch is, and what it raises ends the wait; without it a
        terminal shows a line that says so. Whatever ends the wait loses nothing: the next `rollout`
        waits for the same Batch.

        Raises `PromptsExhausted` when the dataloader ends too early and `DeadlineExceeded` after
        `timeout_seconds`; both say what was missing. Raises `RunFailing` when Groups die one after
        the other; the next `rollout` goes on all the same. Raises `Conflict` when the Run is
        finished, and `WeightMismatch`, once for a Batch, when that has tokens of weights newer than
        those it is to update. Raises `InvalidMessage`, which names the Job, for a Batch with a
        trajectory that cannot be trained on.
        """
        watching = watched(on_progress, show_progress=self._show_progress)
        with watching as show, self._ahead.paused():
            batch_id, status = self._next_batch(requested_batch_size)
            status = self._sampled(batch_id, status, show, timeout_seconds)
            show(status)
        if _unfinished(status):
            self._ahead.go_on()
        batch = self._api.fetch(batch_id)
        error = why_too_new(batch)
        if error and batch_id not in self._found_newer:
            self._found_newer.add(batch_id)
            raise error
        self._claimed.add(batch_id)
        self._taken.add(batch_id)
        return batch

    def batches(self, requested_batch_size: int) -> Iterator[Batch]:
        """What `rollout` returns, again and again: acknowledge each before the next, or request the
        next ahead. Ends as `rollout` does, with an error."""
        while True:
            yield self.rollout(requested_batch_size)

    def ack(self, batch: Batch) -> None:
        """The Batch was consumed: it will not be delivered again; a second time changes nothing.

        Raises `Conflict` for a Batch that was not delivered yet, and `DeadlineExceeded` if the
        orchestrator does not come to it: then acknowledge it again.
        """
        self._api.acknowledge(batch.batch_id)
        self._acknowledged.add(batch.batch_id)
        self._taken.discard(batch.batch_id)
        prompt_ids = {group.prompt.prompt_id for group in batch.groups}
        self._feeder.done(prompt_ids, self._api.prompts())

    def state_dict(self) -> dict[str, Any]:
        """Where the feed stands, for the trainer's own checkpoint: the rows of Prompts that are
        neither trained on nor dropped, and how far the dataloader has come. It is JSON, if rows
        and the dataloader's own state are. Take it after the `ack` of what the weights learned.
        """
        return feeder.state_dict(self._feeder.state(self._api.prompts))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there: call it before the first `request` or `rollout`.

        In the Run that the state was taken from nothing is lost or repeated. In a new one the
        unfinished Prompts come again, then the dataloader from where it was. That must have a
        `state_dict` and `load_state_dict` of its own, as torchdata's StatefulDataLoader has, or
        yield the same items in the same order again: what was drawn before is then skipped.

        Raises `InvalidMessage` for what is no such state, or is another dataloader's, and
        `Conflict` once rows were drawn.
        """
        self._feeder.restore(feeder.from_state_dict(state))

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        """As `Client.update_weights`, while this trainer drives the Run."""
        return self._api.update_weights(path, version)

    def weight_version(self) -> int:
        """As `Client.weight_version`."""
        return self._api.orchestrator.weight_version()

    def score(self, token_ids: TokenArray) -> dict[str, LogprobArray]:
        """LLM server URL -> logprobs, float32 ('f'), one for each of `token_ids`, int32 ('i').

        Each is the natural logarithm of the probability of that token given those before it, under
        the server's weights now, at temperature 1 and uncut. Entry 0, which has none before it, is
        0.0. Compare with the trainer's own after every weight update: they must agree.

        Raises `InvalidMessage` for tokens that the model does not have, or too many of them, and
        `LLMUnavailable` or `DeadlineExceeded` if a server does not answer.
        """
        return self._api.orchestrator.score(token_ids)

    def status(self) -> RunStatus:
        """Where the Run stands. Whoever does not drive it finds it in `Client.status`."""
        return self._api.status()

    def finish(self) -> RunStatus:
        """Stop and forget everything unfinished, and Batches that are not acknowledged. Nothing is
        sampled under this `run_id` any more; finishing again changes nothing."""
        status = self._api.finish()
        self.close()
        return status

    def leave(self) -> None:
        """Let other Runs have the Slots of Jobs that are parked now, or will be. Nothing that the
        Run has is lost: a trainer that takes it over goes on with it."""
        self.close()
        self._api.heard(leaving=True)

    def close(self) -> None:
        """Free its threads, and tell nobody: to the orchestrator the trainer is silent from now on,
        and the Run is as after an error. Closing again changes nothing."""
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
        request = BatchRequest(
            batch_id=f"batch-{secrets.token_hex(8)}", requested_batch_size=requested_batch_size
        )
        return request.batch_id, self._api.request(request)

    def _sampled(
        self, batch_id: str, status: RunStatus, show: ShowProgress, timeout_seconds: float
    ) -> RunStatus:
        """The Run's status once the Batch is complete. The caller's thread feeds until then."""
        deadline = time.monotonic() + timeout_seconds
        while batch_id not in status.batches_ready:
            show(status)
            if error := why_in_vain(status, batch_id, exhausted=self._feeder.exhausted):
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
        """Feed what is wanted now; whether more may be, before the caller's thread is back."""
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
        """The status, once the Run has all again that it was fed and may have forgotten."""
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
