"""A trainer that dies between receiving a Batch and acknowledging it: `python -m chaos.trainer`.

- It remembers its journal and the checkpoint of its feed alone: a Batch in the journal was trained
  on, and is only acknowledged when it comes again.
- It raises the weight version with every Batch that it trains on, and requests some Batches while
  it trains on the one before.
- It is started again after each death, and exits with 0 when every row is used up and the Run is
  closed.
- It draws no new row once a file says that it is enough.
"""

import argparse
import hashlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from chaos import history, work
from chaos.history import History
from rollyard import Client, codec
from rollyard.errors import PromptsExhausted
from rollyard.messages import Batch, Result
from rollyard.training_run import TrainingRun

JOURNAL = "trainer.jsonl"
CHECKPOINT = "feed.json"
ENOUGH = "enough"
PATIENCE_SECONDS = 120.0
AHEAD_SHARE = 0.5
"""Share of the Batches that are requested while the trainer trains on the one before."""
CHECKPOINT_SHARE = 0.5
"""Share of the steps after which the feed is saved; after a death, rows fed since are fed again."""


class TrainedMember(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    attempt: int
    reward: float
    versions: list[int]
    """Weight versions that sampled it, in their order."""


class TrainedGroup(msgspec.Struct, frozen=True):
    number: int
    """Number of its row."""
    members: list[TrainedMember]


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a Batch that was trained on, in the journal."""

    batch_id: str
    digest: str
    requested: int
    version: int
    """Version of the weights that were trained."""
    said_version: int
    """Version that the Batch says it updates."""
    said_ages: dict[int, int]
    """Ages of its members by its own report."""
    groups: list[TrainedGroup]


class ChaosTrainer:
    def __init__(
        self, url: str, directory: Path, row_count: int, seed: int, crash_share: float
    ) -> None:
        path = directory / JOURNAL
        past = list(history.read(path))
        self._history = History(path)
        self._rows_seen = {event["number"] for event in past if event["event"] == "row"}
        self._trained = {
            event["batch_id"]: len(event["groups"]) for event in past if event["event"] == "trained"
        }
        self._row_count = row_count
        self._enough = directory / ENOUGH
        self._checkpoint = directory / CHECKPOINT
        self._random = random.Random(f"{seed} {len(past)}")
        self._crash_share = crash_share
        client = Client(url, patience_seconds=PATIENCE_SECONDS)
        self._run: TrainingRun = client.run(
            self._rows(),
            run_id=work.RUN_ID,
            group_size=work.GROUP_SIZE,
            look_ahead_jobs=work.LOOK_AHEAD_JOBS,
            max_staleness=work.MAX_STALENESS,
        )
        if self._checkpoint.exists():
            self._run.load_state_dict(json.loads(self._checkpoint.read_text()))
            self._history.write("feed_restored")
        else:
            self._save()

    def train(self) -> None:
        """Train until every effective Group was seen, and close the Run."""
        while (requested := self._next_size(len(self._trained))) > 0:
            try:
                batch = self._run.rollout(requested, timeout_seconds=300)
            except PromptsExhausted:  # it was enough, or a Job died, and its Group with it
                break
            self._step(batch, requested)
        self._finish()

    def _next_size(self, index: int, in_training: int = 0) -> int:
        """Size of the Batch with this index, when so many more Groups will be trained on. It is the
        same after a death, for a Batch that was requested before it."""
        effective = sum(not work.is_hopeless(number) for number in range(self._row_count))
        left = effective - sum(self._trained.values()) - in_training
        return min(work.batch_size(index), left)

    def _step(self, batch: Batch, requested: int) -> None:
        seen = {"batch_id": batch.batch_id, "digest": digest(batch)}
        self._history.write("received", **seen)
        if batch.batch_id not in self._trained:
            self._request_ahead(len(batch.groups))
            self._maybe_crash()
            trained = contents(batch, requested, self._version)
            self._history.write("trained", **msgspec.structs.asdict(trained))
            self._trained[batch.batch_id] = len(batch.groups)
        self._maybe_crash()
        self._run.update_weights("nothing", self._version)
        self._maybe_crash()
        self._run.ack(batch)
        self._history.write("acknowledged", **seen)
        if self._random.random() < CHECKPOINT_SHARE:
            self._save()

    @property
    def _version(self) -> int:
        """Version of the weights as they are now."""
        return len(self._trained)

    def _request_ahead(self, in_training: int) -> None:
        size = self._next_size(len(self._trained) + 1, in_training)
        if size > 0 and self._random.random() < AHEAD_SHARE:
            self._run.request(size)
            self._history.write("requested_ahead")

    def _finish(self) -> None:
        before = self._run.status()
        after = self._run.finish()
        self._history.write(
            "closed",
            ready_groups=before.effective_groups,
            open_groups=before.open_groups,
            before=msgspec.to_builtins(before.counters),
            after=msgspec.to_builtins(after.counters),
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Dataset rows, the same in every life. Those drawn before come even when it is enough."""
        for row in work.rows(0, self._row_count):
            if row["number"] not in self._rows_seen:
                if self._enough.exists():
                    return
                self._history.write("row", number=row["number"])
                self._rows_seen.add(row["number"])
            yield row

    def _save(self) -> None:
        fresh = self._checkpoint.with_suffix(".new")
        fresh.write_text(json.dumps(self._run.state_dict()))
        fresh.replace(self._checkpoint)

    def _maybe_crash(self) -> None:
        if self._random.random() < self._crash_share:
            self._history.write("crash")
            os.kill(os.getpid(), signal.SIGKILL)


def contents(batch: Batch, requested: int, version: int) -> Trained:
    """The record of the Batch as it is trained on with the weights of this version."""
    return Trained(
        batch_id=batch.batch_id,
        digest=digest(batch),
        requested=requested,
        version=version,
        said_version=batch.report.weight_version,
        said_ages=batch.report.bias.ages,
        groups=[
            TrainedGroup(group.prompt.instance["number"], [member(r) for r in group.results])
            for group in batch.groups
        ],
    )


def member(result: Result) -> TrainedMember:
    assert result.trajectory is not None
    assert result.reward is not None
    versions = [span.version for each in result.trajectory.sequences for span in each.weight_spans]
    return TrainedMember(result.lease.job_id, result.lease.attempt, result.reward, versions)


def digest(batch: Batch) -> str:
    """Digest of what is trained on, without the counters, which may change."""
    return hashlib.sha256(codec.encode(batch.groups)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.trainer", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crash-share", type=float, required=True)
    flags = parser.parse_args()
    ChaosTrainer(flags.url, flags.directory, flags.rows, flags.seed, flags.crash_share).train()


if __name__ == "__main__":
    main()
