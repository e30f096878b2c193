"""A loop in the order of prime-rl's trainer (its main branch of August 2026, commit 559b4477),
beside the process that feeds it. The rows are those in the files that it reads.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rollyard.rows import Row
from rollyard.trainers.prime_rl import Feed, PrimeTrainer
from rollyard.trainers.steps import write_whole
from tests.trainers.contract import GROUPS, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.evaluated import mean_reward

FIELDS = (
    "input_ids",
    "loss_mask",
    "advantages",
    "inference_logprobs",
    "position_ids",
    "sequence_lengths",
    "temperatures",
    "env_names",
    "seq_lens",
)
"""Of prime_rl.transports.rollouts.types.MicroBatch, which is an array of them."""
RANKS = 2


class PrimeRlLoop:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._output = start.directory / "output"
        self._checkpoint = start.directory / "checkpoint.json"
        self._weights: list[float] = []
        if self._checkpoint.exists():
            self._weights = json.loads(self._checkpoint.read_text())
        self._feed = Feed(
            start.run,
            GROUPS,
            PrimeTrainer(
                output_dir=self._output,
                model=start.policy_dir,
                data_ranks=RANKS,
                sequence_tokens=64,
            ),
        )

    def train(self) -> None:
        self._broadcast()
        while len(self._weights) < self._start.steps:
            step = len(self._weights) + 1
            if self._feed.step < step:
                self._feed.feed()
            rows = [row for rank in range(RANKS) for row in self._received(step, rank)]
            self._start.stepped(step - 1, rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            self._broadcast()
            write_whole(self._checkpoint, self._weights)
        self._feed.end()

    def evaluate(self, rows: Sequence[Row]) -> float:
        return mean_reward(self._start, rows)

    def weights(self) -> list[float]:
        return self._weights

    def _broadcast(self) -> None:
        folder = self._output / "broadcasts" / f"step_{len(self._weights)}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_text(json.dumps(self._weights))
        (folder / "STABLE").touch()

    def _received(self, step: int, rank: int) -> Iterator[TrainedRow]:
        file = self._output / "rollouts" / f"step_{step}" / f"rank_{rank}.bin"
        for values in msgspec.msgpack.decode(file.read_bytes()):
            yield from trained_rows(dict(zip(FIELDS, values, strict=True)))


def trained_rows(batch: dict[str, Any]) -> Iterator[TrainedRow]:
    """Of each of its sequences, unless it is there for a rank that has none."""
    begin = 0
    for length in batch["sequence_lengths"]:
        own = slice(begin, begin + length)
        begin += length
        assert batch["position_ids"][own] == list(range(length))
        assert set(batch["temperatures"][own]) == {TEMPERATURE}
        (advantage,) = set(batch["advantages"][own])
        if advantage:
            yield TrainedRow(
                token_ids=batch["input_ids"][own],
                loss_mask=batch["loss_mask"][own],
                logprobs=batch["inference_logprobs"][own],
                advantage=advantage,
            )


ADAPTER = Adapter(
    name="prime-rl",
    trainer=PrimeRlLoop,
    without=frozenset({"weight_versions", "reward", "group"}),
    any_batch_size=True,
)
