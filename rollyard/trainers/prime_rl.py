"""prime-rl's trainer on Batches of Rollyard, in the place of prime-rl's orchestrator. It is a
process of its own, which shares files with the trainer, and imports nothing of it.

    trainer = PrimeTrainer(output_dir=..., model=..., data_ranks=8, sequence_tokens=8192)
    Feed(run, 32, trainer).run(steps=1000)  # beside prime_rl.trainer.rl.train

The trainer reads `rollouts/step_N/rank_R.bin`, and writes its weights after each step to
`broadcasts/step_N`, the file STABLE last. What it was given stays there: either process goes on
from these files when it starts again, and a step that the trainer repeats is on the same Batch.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from rollyard.errors import DeadlineExceeded, InvalidMessage
from rollyard.messages import Batch
from rollyard.trainers.advantages import GroupNumbers, Numbers, dr_grpo
from rollyard.trainers.numbered_steps import NumberedSteps
from rollyard.trainers.packing import Pack, packed
from rollyard.trainers.sequences import TrainingSequence, rewards, training_sequences
from rollyard.trainers.steps import write_whole
from rollyard.training_run import TrainingRun

POLL_SECONDS = 0.2
"""Between two looks at a directory that other machines write to: nothing tells of their files."""
RANKS = "rollyard.json"
"""File of a step with the number of ranks that it is written for. It is written first."""
MODEL_FILES = ("*.json", "*.txt", "*.jinja", "*.model")
"""What a model directory has beside its weights."""


@dataclass(frozen=True, kw_only=True)
class PrimeTrainer:
    """What the trainer's configuration says of it."""

    output_dir: Path
    """`output_dir`: one that all LLM servers can read."""
    model: Path
    """Directory of the model that it begins with, for config.json and the tokenizer."""
    data_ranks: int
    """Its processes, without those that share a sequence."""
    sequence_tokens: int
    """`model.seq_len`: the tokens of a micro batch."""
    advantages: Callable[[Numbers, GroupNumbers], Numbers] = dr_grpo
    step_seconds: float = 7200.0
    """How long its weights are waited for after a step was written."""


class MicroBatch(msgspec.Struct, array_like=True):
    """Sequences one after the other, as the trainer decodes them: an array of fields in this order.
    N is the number of their tokens. All lists but two are [N]."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]


class Feed:
    """Gives the trainer a Batch of `batch_size` a step."""

    def __init__(self, run: TrainingRun, batch_size: int, trainer: PrimeTrainer) -> None:
        self._temperature = run.settings.sampling.temperature
        self._trainer = trainer
        self._rollouts = trainer.output_dir / "rollouts"
        directory = trainer.output_dir / "rollyard"
        self._steps = NumberedSteps(run, batch_size, directory, is_kept=lambda step: False)
        self.step = max(filter(self._is_whole, self._written()), default=0)
        """The last step that the trainer was given a Batch for."""
        if self.step:
            self._check_ranks()

    def run(self, steps: int) -> None:
        """Give the trainer Batches until its step number `steps` is trained. Raises
        `DeadlineExceeded` where it trains none, and what `TrainingRun.rollout` does."""
        while self.step < steps:
            self.feed()
        self.end()

    def feed(self) -> None:
        """Publish the weights of the last step, and give the trainer a Batch for the next one."""
        self._publish()
        step = self.step + 1
        self._write(step, self._steps.next(step))
        self.step = step

    def end(self) -> None:
        """Publish the weights of the last step, and acknowledge its Batch."""
        self._publish()
        self._steps.end()

    def _publish(self) -> None:
        weights = self._trainer.output_dir / "broadcasts" / f"step_{self.step}"
        deadline = time.monotonic() + self._trainer.step_seconds
        while not (weights / "STABLE").exists():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"prime-rl's trainer has not written {weights}",
                    fix="look into its log; weight_broadcast.type must be filesystem",
                )
            time.sleep(POLL_SECONDS)
        self._steps.publish(self.step, partial(link, weights, self._trainer.model))

    def _write(self, step: int, batch: Batch) -> None:
        ranks = self._trainer.data_ranks
        whole = micro_batches(batch, self._trainer, self._temperature)
        whole += [untrained(whole[0])] * (-len(whole) % ranks)
        folder = self._rollouts / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / RANKS, ranks)
        for rank in range(ranks):
            unfinished = folder / f"rank_{rank}.unfinished"
            unfinished.write_bytes(msgspec.msgpack.encode(whole[rank::ranks]))
            unfinished.rename(folder / f"rank_{rank}.bin")

    def _written(self) -> Iterator[int]:
        files = self._rollouts.glob(f"step_*/{RANKS}")
        return (int(file.parent.name.rpartition("_")[2]) for file in files)

    def _is_whole(self, step: int) -> bool:
        folder = self._rollouts / f"step_{step}"
        return all((folder / f"rank_{rank}.bin").exists() for rank in range(self._ranks(step)))

    def _ranks(self, step: int) -> int:
        return int(json.loads((self._rollouts / f"step_{step}" / RANKS).read_text()))

    def _check_ranks(self) -> None:
        """Raise `InvalidMessage` where the last step was written for another number of ranks: a
        trainer that repeats it would train on a part of it, or wait for the rest."""
        ranks = self._ranks(self.step)
        if ranks != self._trainer.data_ranks:
            raise InvalidMessage(
                f"step {self.step} was written for {ranks} data ranks, and the trainer has "
                f"{self._trainer.data_ranks}",
                fix=f"go on with data_ranks={ranks}, or in another output_dir with another run_id",
            )


def micro_batches(batch: Batch, trainer: PrimeTrainer, temperature: float) -> list[MicroBatch]:
    sequences = training_sequences(batch)
    found = trainer.advantages(*rewards(batch))
    names = [group.prompt.instance["data_source"] for group in batch.groups]
    packs = packed(sequences, max_tokens=trainer.sequence_tokens)
    return [micro_batch(pack, sequences, found, names, temperature) for pack in packs]


def micro_batch(
    pack: Pack,
    sequences: Sequence[TrainingSequence],
    advantages: Numbers,
    names: Sequence[str],
    temperature: float,
) -> MicroBatch:
    own = [sequences[number] for number in pack.sequences]
    lengths = [len(each) for each in own]
    each_advantage = np.repeat([advantages[sequence.trajectory] for sequence in own], lengths)
    return MicroBatch(
        input_ids=pack.token_ids.tolist(),
        loss_mask=pack.loss_mask.tolist(),
        advantages=each_advantage.tolist(),
        inference_logprobs=pack.logprobs.tolist(),
        position_ids=pack.positions.tolist(),
        sequence_lengths=lengths,
        temperatures=[temperature] * len(pack),
        env_names=[names[sequence.group] for sequence in own for _ in range(len(sequence))],
        seq_lens=lengths,
    )


def untrained(source: MicroBatch) -> MicroBatch:
    """One that teaches nothing, for a rank that has one less than others."""
    tokens = len(source.input_ids)
    nothing = {"loss_mask": [False] * tokens, "advantages": [0.0] * tokens}
    return msgspec.structs.replace(source, **nothing)


def link(weights: Path, model: Path, target: Path) -> None:
    """Put the weights of a step into `target`, with what makes a model of them."""
    for file in weights.iterdir():
        if file.name != "STABLE" and not (target / file.name).exists():
            os.link(file, target / file.name)
    if (weights / "adapter_config.json").exists():
        return
    for file in (file for pattern in MODEL_FILES for file in model.glob(pattern)):
        if not (target / file.name).exists() and "index" not in file.name:
            shutil.copy(file, target)
