"""A trainer that dies between receiving a Batch and acknowledging it: `python -m chaos.trainer`.

- Its optimiser journal is the only thing it remembers: a Batch that stands there was trained on,
  and is only acknowledged when it comes again.
- Started again after each death, it ends with 0 when every row is used up and the Run is closed.
- No row follows once somebody has said, with a file, that it is enough.
"""

import argparse
import hashlib
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
from rollyard.messages import Batch
from rollyard.training_run import TrainingRun

JOURNAL = "trainer.jsonl"
ENOUGH = "enough"
PATIENCE_SECONDS = 120.0


class Trainer:
    def __init__(
        self, url: str, directory: Path, row_count: int, seed: int, crash_share: float
    ) -> None:
        path = directory / JOURNAL
        past = list(history.read(path))
        self._history = History(path)
        self._next_row = sum(event["event"] == "row" for event in past)
        self._trained = {
            event["batch_id"]: len(event["groups"]) for event in past if event["event"] == "trained"
        }
        self._row_count = row_count
        self._enough = directory / ENOUGH
        self._random = random.Random(f"{seed} {len(past)}")
        self._crash_share = crash_share
        client = Client(url, patience_seconds=PATIENCE_SECONDS)
        self._run: TrainingRun = client.run(
            self._rows(),
            run_id=work.RUN_ID,
            group_size=work.GROUP_SIZE,
            look_ahead_jobs=work.LOOK_AHEAD_JOBS,
        )

    def train(self) -> None:
        """Train until every effective Group was seen, and close the Run."""
        effective = sum(not work.is_hopeless(number) for number in range(self._row_count))
        while (left := effective - sum(self._trained.values())) > 0:
            requested = min(work.BATCH_SIZE, left)
            try:
                batch = self._run.rollout(requested, timeout_seconds=300)
            except PromptsExhausted:  # it was enough, or a Job died, and its Group with it
                break
            self._step(batch, requested)
        self._finish()

    def _step(self, batch: Batch, requested: int) -> None:
        seen = {"batch_id": batch.batch_id, "digest": digest(batch)}
        self._history.write("received", **seen)
        if batch.batch_id not in self._trained:
            self._maybe_crash()
            self._history.write("trained", groups=samples(batch), requested=requested, **seen)
            self._trained[batch.batch_id] = len(batch.groups)
        self._maybe_crash()
        self._run.ack(batch)
        self._history.write("acknowledged", **seen)

    def _finish(self) -> None:
        before = self._run.status()
        after = self._run.close()
        self._history.write(
            "closed",
            ready_groups=before.effective_groups,
            open_groups=before.open_groups,
            before=msgspec.to_builtins(before.counters),
            after=msgspec.to_builtins(after.counters),
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        for row in work.rows(self._next_row, self._row_count):
            if self._enough.exists():
                return
            self._history.write("row", number=row["number"])
            self._next_row += 1
            yield row

    def _maybe_crash(self) -> None:
        if self._random.random() < self._crash_share:
            self._history.write("crash")
            os.kill(os.getpid(), signal.SIGKILL)


def samples(batch: Batch) -> list[dict[str, Any]]:
    """Every Group: its row and its members' Jobs, attempts and rewards."""
    return [
        {
            "number": group.prompt.instance["number"],
            "members": [
                [result.lease.job_id, result.lease.attempt, result.reward]
                for result in group.results
            ],
        }
        for group in batch.groups
    ]


def digest(batch: Batch) -> str:
    """Of what is trained on; the counters beside it may go on."""
    return hashlib.sha256(codec.encode(batch.groups)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.trainer", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crash-share", type=float, required=True)
    flags = parser.parse_args()
    Trainer(flags.url, flags.directory, flags.rows, flags.seed, flags.crash_share).train()


if __name__ == "__main__":
    main()
