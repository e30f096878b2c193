"""What an adapter shows to the contract suite, `test_adapters.py`.

`adapters/` has a file for each, in which `ADAPTER` says how that trainer is driven.
"""

import importlib
import pkgutil
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rollyard.client import Client
from rollyard.rows import Row
from rollyard.training_run import TrainingRun

GROUPS = 2
"""Groups in each Batch."""
GROUP_SIZE = 4
TEMPERATURE = 0.7
VOCABULARY = 200
"""Token ids are below it: the policy of examples/arithmetic has 259 tokens."""


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """One sequence that a trainer's step was on, read from the trainer's own tensors or records:
    those that its loss is made of, never the Batch. T is its number of tokens, without padding."""

    token_ids: Sequence[int]
    """[T]: prompt, responses and observations. What follows the last sampled token may be left
    out."""
    loss_mask: Sequence[bool]
    """[T]: whether the token is trained on."""
    logprobs: Sequence[float] | None = None
    """[T]: of those that sampled, as the loss takes them. Read only where `loss_mask` is true, as
    `weight_versions` are."""
    weight_versions: Sequence[int] | None = None
    """[T]"""
    reward: float | None = None
    """That of its trajectory."""
    advantage: float | None = None
    """As it stands before the loss."""
    group: Hashable | None = None
    """The same for all of a Group, and different for others of the same step."""


Stepped = Callable[[int, Sequence[TrainedRow]], None]
"""`stepped(number, rows)`: what the step is on, numbered from 0 over the whole training. An adapter
calls it once a step, when it trains on the rows, and before they are part of the weights."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a process of a trainer begins with. Each later process of the same trainer has the same
    directory, and goes on from the last whole checkpoint there."""

    client: Client
    run: TrainingRun
    """Of Groups of `GROUP_SIZE`, sampled at `TEMPERATURE`."""
    directory: Path
    """For checkpoints, the trainer's own and those that are published."""
    policy_dir: Path
    """A tiny causal model with its tokenizer, as `from_pretrained` takes it."""
    steps: int
    """Steps of the whole training, on `GROUPS` Groups each."""
    stepped: Stepped


class Trainer(Protocol):
    """One process of a trainer."""

    def train(self) -> None:
        """Train until `steps` are done, those of earlier processes included, and write a
        checkpoint after each. An error of Rollyard's rises from here."""

    def evaluate(self, rows: Sequence[Row]) -> float:
        """The mean reward of these rows, each sampled once."""

    def weights(self) -> Sequence[float]:
        """What the weights are now: the same after the same rows in the same order."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    name: str
    trainer: Callable[[Start], Trainer]
    without: frozenset[str] = field(default_factory=frozenset)
    """Fields of `TrainedRow` that this trainer has no place for."""
    last_sequence_alone: bool = False
    """True if of a trajectory that its chat template splits the last sequence alone is trained
    on."""
    any_batch_size: bool = False
    """True if a Batch of another size than is asked for now is trained on as it is."""
    max_staleness: int = 1
    """That of its Run."""
    in_a_process: bool = False
    """True if it is tried as a process of its own, too, which is killed by SIGKILL."""


def all_adapters() -> list[Adapter]:
    package = importlib.import_module("tests.trainers.adapters")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return [module.ADAPTER for module in modules]
