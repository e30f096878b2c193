"""Sequences side by side, padded to one length.

S is the number of sequences, T the length of the longest, rounded up to a multiple. Padding is at
the right, which no token of a causal model sees, or at the left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollyard.trainers.sequences import NOT_SAMPLED, TrainingSequence

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class PaddedSequences:
    token_ids: NDArray[np.int64]
    """[S, T]"""
    attention_mask: NDArray[np.bool_]
    """[S, T]: true where there is a token."""
    loss_mask: NDArray[np.bool_]
    """[S, T]: true where the policy sampled the token."""
    logprobs: NDArray[np.float32]
    """[S, T]: of sampled tokens in the distribution that sampled them, 0.0 elsewhere."""
    weight_versions: NDArray[np.int64]
    """[S, T]: of the weights that sampled the token, else `NOT_SAMPLED`."""
    lengths: NDArray[np.int64]
    """[S]: tokens without padding."""
    trajectories: NDArray[np.int64]
    """[S]: number of the trajectory in the Batch."""
    groups: NDArray[np.int64]
    """[S]: number of the Group in the Batch."""

    def __len__(self) -> int:
        return len(self.token_ids)


def padded(
    sequences: Sequence[TrainingSequence],
    *,
    pad_token_id: int,
    side: Side = "right",
    multiple_of: int = 1,
) -> PaddedSequences:
    lengths = np.array([len(each) for each in sequences], dtype=np.int64)
    longest = int(lengths.max(initial=1))
    shape = len(sequences), -(-longest // multiple_of) * multiple_of

    def lay_out(rows: Sequence[NDArray[Any]], padding: float, dtype: type[np.generic]) -> Any:
        laid = np.full(shape, padding, dtype=dtype)
        for target, row in zip(laid, rows, strict=True):
            target[_place(len(row), shape[1], side)] = row
        return laid

    return PaddedSequences(
        token_ids=lay_out([each.token_ids for each in sequences], pad_token_id, np.int64),
        attention_mask=lay_out([np.ones(n, bool) for n in lengths], False, np.bool_),
        loss_mask=lay_out([each.loss_mask for each in sequences], False, np.bool_),
        logprobs=lay_out([each.logprobs for each in sequences], 0.0, np.float32),
        weight_versions=lay_out([s.weight_versions for s in sequences], NOT_SAMPLED, np.int64),
        lengths=lengths,
        trajectories=np.array([each.trajectory for each in sequences], dtype=np.int64),
        groups=np.array([each.group for each in sequences], dtype=np.int64),
    )


def _place(length: int, width: int, side: Side) -> slice:
    return slice(0, length) if side == "right" else slice(width - length, width)
