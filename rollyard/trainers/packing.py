"""Sequences one after the other, without padding, in packs of bounded length.

A pack is what attention over variable lengths takes: positions begin anew with each sequence, and
`starts` says where. N is the number of a pack's tokens, P that of its sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollyard.errors import InvalidMessage
from rollyard.trainers.sequences import TrainingSequence


@dataclass(frozen=True, slots=True)
class Pack:
    token_ids: NDArray[np.int64]
    """[N]"""
    positions: NDArray[np.int64]
    """[N]: of each token in its sequence."""
    loss_mask: NDArray[np.bool_]
    """[N]: true where the policy sampled the token. Never at the first token of a sequence: the one
    before it is another's."""
    logprobs: NDArray[np.float32]
    """[N]: of sampled tokens in the distribution that sampled them, 0.0 elsewhere."""
    weight_versions: NDArray[np.int64]
    """[N]: of the weights that sampled the token, else `NOT_SAMPLED`."""
    starts: NDArray[np.int32]
    """[P + 1]: where each sequence begins, and N (`cu_seqlens`)."""
    sequences: NDArray[np.int64]
    """[P]: number of each sequence among those that were packed."""

    def __len__(self) -> int:
        return len(self.token_ids)


def packed(sequences: Sequence[TrainingSequence], *, max_tokens: int) -> list[Pack]:
    """Packs of at most `max_tokens`, which have every sequence once: each goes, the longest first,
    into the first pack that has room.

    Raises `InvalidMessage` for a sequence that is longer.
    """
    packs: list[list[int]] = []
    lengths: list[int] = []
    for number in sorted(range(len(sequences)), key=lambda each: -len(sequences[each])):
        length = len(sequences[number])
        if length > max_tokens:
            raise InvalidMessage(
                f"a sequence of {length} tokens fits in no pack of {max_tokens}",
                fix="raise max_tokens to the model's context, or lower the run's max_tokens",
            )
        free = (pack for pack, taken in enumerate(lengths) if taken + length <= max_tokens)
        pack = next(free, len(packs))
        if pack == len(packs):
            packs.append([])
            lengths.append(0)
        packs[pack].append(number)
        lengths[pack] += length
    return [_pack(sequences, sorted(numbers)) for numbers in packs]


def _pack(sequences: Sequence[TrainingSequence], numbers: list[int]) -> Pack:
    chosen = [sequences[number] for number in numbers]
    lengths = [len(each) for each in chosen]
    return Pack(
        token_ids=np.concatenate([each.token_ids for each in chosen]).astype(np.int64),
        positions=np.concatenate([np.arange(length) for length in lengths]),
        loss_mask=np.concatenate([each.loss_mask for each in chosen]),
        logprobs=np.concatenate([each.logprobs for each in chosen]),
        weight_versions=np.concatenate([each.weight_versions for each in chosen]),
        starts=np.cumsum([0, *lengths]).astype(np.int32),
        sequences=np.array(numbers, dtype=np.int64),
    )
