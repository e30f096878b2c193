"""The steps of a trainer, each of which trains on one Batch.

Owns which Batch is trained on, and the checkpoints that are published. Always true:

- A Batch is acknowledged after the weights that were trained on it are published, and when the next
  one is asked for: in between the trainer writes its own checkpoint.
- A trainer that goes on from a checkpoint with these steps' state never trains on a Batch that the
  checkpoint's weights were trained on, and on every other one. One that has no checkpoint yet feeds
  the rows under the names that they had, so that the Run knows them: `FIRST_FEED`.
"""

import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollyard.errors import Conflict, WeightMismatch
from rollyard.messages import Batch
from rollyard.trainers.states import to_json
from rollyard.training_run import TrainingRun

FIRST_FEED = "first-feed.json"
"""File beside the published checkpoints with the name of the Run's first feed."""
NEW_RUN = "for another batch size use another run_id, which is fed what the checkpoint lacks"
"""What to do where a Batch that was requested earlier has not the size that is wanted now."""
Save = Callable[[Path], object] | None
"""Writes the trainer's weights, as LLM servers load them, into a directory that exists. None says
that the trainer has put them on the LLM servers itself."""


class Steps:
    """Steps of `batch_size` on `run`. `checkpoints` is a directory that all LLM servers can read;
    the published checkpoint is kept there, and no other."""

    def __init__(self, run: TrainingRun, batch_size: int, checkpoints: Path) -> None:
        self.run = run
        self.batch_size = batch_size
        self._checkpoints = checkpoints.resolve()
        self.version = 0
        """That of the weights published last; 0 before the first."""
        self._batch: Batch | None = None
        """The one that is trained on."""
        self._trained: Batch | None = None
        """The one that was trained on, and is not acknowledged."""
        self._restored = False

    def publish(self, save: Save) -> None:
        """Publish the trainer's weights: before `begin`, for an evaluation.

        Raises what `TrainingRun.update_weights` does, and `weights_updated`."""
        version = self.run.weight_version() + 1
        if save is None:
            self.run.weights_updated(version)
            self.version = version
            return
        path = self._directory_of(version)
        save(path)
        self.run.update_weights(path, version)
        self.version = version
        for other in self._checkpoints.glob("version-*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def begin(self, save: Save) -> None:
        """Publish the trainer's weights, whatever was served before, and ask for the first Batch.

        Raises what `TrainingRun.update_weights` does, and `weights_updated`."""
        if not self._restored:
            self._go_on_with_first_feed()
        self.publish(save)
        self.run.request(self.batch_size)

    def next(self, exact_for: str = "") -> Batch:
        """The Batch to train on. The one after it is sampled from now on, unless `max_staleness` is
        0. Until `trained` is called it is this one again.

        Raises what `TrainingRun.rollout` does, and `WeightMismatch` for a Batch with tokens of
        older weights than `max_staleness` allows. `exact_for` names a trainer that takes Batches of
        `batch_size` Groups alone: one that was requested before the batch size was changed raises
        `Conflict`, and none is requested beside it.
        """
        if not self.version:
            raise Conflict("no weights are published yet", fix="call `begin` first")
        self._acknowledge()
        if self._batch is None:
            batch = self.run.rollout(self.batch_size)
            self._check_age(batch)
            if exact_for:
                self._check_size(batch, exact_for)
            self._batch = batch
            if self.run.settings.max_staleness > 0:
                self.run.request(self.batch_size)
        return self._batch

    def trained(self, save: Save) -> None:
        """Say that the weights are trained on the Batch, and publish them. It is acknowledged by
        the next call of `next` or `end`; until then write the checkpoint that is to go on here.

        Raises what `TrainingRun.update_weights` does; call it again then."""
        if self._batch is None:
            raise Conflict("there is no batch that is trained on", fix="call `next` first")
        self.publish(save)
        self._trained, self._batch = self._batch, None

    def end(self) -> None:
        """Acknowledge the last Batch. The Run keeps what else it has."""
        self._acknowledge()

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint with the weights of the last `trained`, as `TrainingRun.state_dict`
        gives it."""
        return self.run.state_dict(() if self._trained is None else (self._trained,))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`; call it before `begin`. Raises as
        `TrainingRun.load_state_dict`."""
        self.run.load_state_dict(state)
        self._restored = True

    def first_feed(self) -> str | None:
        """The session of the Run's first feed, if a trainer of it has begun in this directory."""
        file = self._checkpoints / FIRST_FEED
        if not file.exists():
            return None
        begun = json.loads(file.read_text())
        return str(begun["session"]) if begun["run_id"] == self.run.run_id else None

    def _go_on_with_first_feed(self) -> None:
        state = self.run.state_dict()
        if session := self.first_feed():
            self.run.load_state_dict({**state, "session": session})
            return
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        begun = {"run_id": self.run.run_id, "session": state["session"]}
        write_whole(self._checkpoints / FIRST_FEED, begun)

    def _acknowledge(self) -> None:
        if self._trained is not None:
            self.run.ack(self._trained)
            self._trained = None

    def _directory_of(self, version: int) -> Path:
        """A new directory. One that is there is of a process that died while it wrote, or of a
        trainer that was replaced and still writes: nothing of theirs may be among these weights."""
        path = self._checkpoints / f"version-{version}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            path = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
            path.mkdir()
        return path

    def _check_size(self, batch: Batch, trainer: str) -> None:
        if len(batch.groups) != self.batch_size:
            raise Conflict(
                f"{trainer} takes {self.batch_size} groups, and batch {batch.batch_id!r} was "
                f"requested with {len(batch.groups)}",
                fix=f"{NEW_RUN}, or go on with the batch size of before",
            )

    def _check_age(self, batch: Batch) -> None:
        sampled = (
            (span.version, result.lease.job_id)
            for group in batch.groups
            for result in group.results
            if result.trajectory is not None
            for sequence in result.trajectory.sequences
            for span in sequence.weight_spans
        )
        version, job_id = min(sampled, default=(batch.report.weight_version, ""))
        age = batch.report.weight_version - version
        if age > self.run.settings.max_staleness:
            raise WeightMismatch(
                f"batch {batch.batch_id!r} updates weight version {batch.report.weight_version}, "
                f"and job {job_id!r} has tokens of version {version}: max_staleness is "
                f"{self.run.settings.max_staleness}",
                fix="look at `rollyard status` for LLM servers that serve an old version; the next "
                "call returns this batch again",
            )


def write_whole(file: Path, content: object) -> None:
    """Write JSON that is there as a whole, or not at all, if this process dies. `states.from_json`
    reads it."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(to_json(content))
    unfinished.replace(file)
