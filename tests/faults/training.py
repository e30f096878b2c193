"""A trainer that publishes weights with every Batch: `python -m tests.faults.training`.

- It numbers its versions as it is documented: from `weight_version() + 1` on.
- Its journal is all that it remembers: a Batch that stands there was trained on, and is published
  and acknowledged, under the same version, when it comes again.
- Its checkpoints are copies of one model, each with a name of its own.
"""

import argparse
import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollyard import Batch, Client, Limits, Sampling

RUN_ID = "restarts"
JOURNAL = "journal.jsonl"
GROUPS = 2
GROUP_SIZE = 4
MAX_STALENESS = 1
AHEAD_SHARE = 0.5
"""Of Batches that are requested while the trainer trains on the one before."""
PATIENCE_SECONDS = 900.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One Batch that was trained on."""

    batch_id: str
    batch_version: int
    """Of the weights that it updates."""
    oldest: int
    """Weight version of its oldest token."""
    newest: int
    version: int
    """Under which its new weights are published."""
    path: str
    groups: list[str]
    restarted: int
    """Members of the Run that were begun again so far, because their tokens were too old."""
    dead: int
    """Jobs of the Run that died so far."""


class Trainer:
    def __init__(self, url: str, directory: Path, seed: int, model: Path) -> None:
        self._directory = directory
        self._model = model
        self._journal = directory / JOURNAL
        steps = read_steps(directory)
        self._steps = {step.batch_id: step for step in steps}
        self._random = random.Random(f"{seed} {len(steps)}")
        client = Client(url, patience_seconds=PATIENCE_SECONDS)
        self._version = client.weight_version()
        self._run = client.run(
            problems(),
            run_id=RUN_ID,
            group_size=GROUP_SIZE,
            max_staleness=MAX_STALENESS,
            sampling=Sampling(max_response_tokens=24),
            limits=Limits(max_turns=3, max_tokens=256, job_seconds=300),
        )

    def train(self) -> None:
        while True:
            batch = self._run.rollout(GROUPS, timeout_seconds=600)
            step = self._steps.get(batch.batch_id) or self._learn(batch)
            self._run.update_weights(step.path, step.version)
            self._version = max(self._version, step.version)
            self._run.ack(batch)

    def _learn(self, batch: Batch) -> Step:
        if self._random.random() < AHEAD_SHARE:
            self._run.request(GROUPS)
        path = self._directory / f"version-{self._version + 1}"
        if not path.exists():
            shutil.copytree(self._model, path, ignore=shutil.ignore_patterns("*.py"))
        step = self._described(batch, path)
        with self._journal.open("ab") as journal:
            journal.write(msgspec.json.encode(step) + b"\n")
        self._steps[batch.batch_id] = step
        return step

    def _described(self, batch: Batch, path: Path) -> Step:
        trajectories = [result.trajectory for group in batch.groups for result in group.results]
        versions = [span.version for each in trajectories if each for span in each.weight_spans]
        return Step(
            batch_id=batch.batch_id,
            batch_version=batch.report.weight_version,
            oldest=min(versions),
            newest=max(versions),
            version=self._version + 1,
            path=str(path),
            groups=[group.group_id for group in batch.groups],
            restarted=batch.counters.members_restarted,
            dead=batch.counters.jobs_dead,
        )


def read_steps(directory: Path) -> list[Step]:
    """What the trainer in `directory` has trained on so far."""
    journal = directory / JOURNAL
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    return [msgspec.json.decode(line, type=Step) for line in lines]


def problems() -> Iterator[dict[str, Any]]:
    """The same in every life."""
    for number in itertools.count():
        left, right = 10 + number % 90, 10 + number * 7 % 90
        yield {
            "data_source": "arithmetic",
            "question": f"{left}*{right}",
            "answer": str(left * right),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.faults.training", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    flags = parser.parse_args()
    Trainer(flags.url, flags.directory, flags.seed, flags.model).train()


if __name__ == "__main__":
    main()
