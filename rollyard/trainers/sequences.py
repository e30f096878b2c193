"""What a Batch is to a trainer: sequences of tokens, each with all that a loss needs.

Arrays are numpy's; `torch.from_numpy` makes tensors of them without a copy.

T is the length of a sequence. A trajectory is one sequence, unless its chat template splits it; its
sequences follow one another, and those of a Group's trajectories do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Result, Sequence, Trajectory

if TYPE_CHECKING:
    from array import array

NOT_SAMPLED = -1
"""The weight version of tokens that no weights sampled."""


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """One sequence. Its arrays are views of the Batch's own: do not write to them."""

    token_ids: NDArray[np.int32]
    """[T]: prompt, responses and observations."""
    loss_mask: NDArray[np.bool_]
    """[T]: true where the policy sampled the token."""
    logprobs: NDArray[np.float32]
    """[T]: of each sampled token in the distribution that sampled it, 0.0 elsewhere."""
    weight_versions: NDArray[np.int64]
    """[T]: of the weights that sampled the token, else `NOT_SAMPLED`."""
    prompt_length: int
    """Tokens before the policy's first one."""
    trajectory: int
    """Number of its trajectory in the Batch, in the order of groups and members."""
    group: int
    """Number of its Group in the Batch."""
    reward: float
    """That of its trajectory."""
    truncated: bool
    """True if a limit ended the trajectory, not the policy."""

    def __len__(self) -> int:
        return len(self.token_ids)


def training_sequences(batch: Batch) -> list[TrainingSequence]:
    """All sequences of the Batch.

    Raises `InvalidMessage` for a Result without trajectory or reward, which no Batch should have.
    """
    return list(_sequences(batch))


def rewards(batch: Batch) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Reward and Group of each trajectory, [trajectories] both, in the order of the Batch."""
    results = [(_reward(r), n) for n, group in enumerate(batch.groups) for r in group.results]
    return (
        np.array([reward for reward, _ in results], dtype=np.float64),
        np.array([group for _, group in results], dtype=np.int64),
    )


def _sequences(batch: Batch) -> Iterator[TrainingSequence]:
    trajectory = 0
    for number, group in enumerate(batch.groups):
        for result in group.results:
            whole = _trajectory(result)
            for sequence in whole.sequences:
                yield TrainingSequence(
                    token_ids=_view(sequence.token_ids, np.int32),
                    loss_mask=_view(sequence.loss_mask, np.int8) != 0,
                    logprobs=_view(sequence.logprobs, np.float32),
                    weight_versions=_versions(sequence),
                    prompt_length=sequence.prompt_length,
                    trajectory=trajectory,
                    group=number,
                    reward=_reward(result),
                    truncated=whole.truncated,
                )
            trajectory += 1


def _versions(sequence: Sequence) -> NDArray[np.int64]:
    versions = np.full(len(sequence.token_ids), NOT_SAMPLED, dtype=np.int64)
    for span in sequence.weight_spans:
        versions[span.start : span.end] = span.version
    return versions


def _view(values: "array[Any]", dtype: type[np.generic]) -> NDArray[Any]:
    view: NDArray[Any] = np.frombuffer(values, dtype=dtype)
    view.flags.writeable = False
    return view


def _trajectory(result: Result) -> Trajectory:
    if result.trajectory is None:
        raise InvalidMessage(f"job {result.lease.job_id} is in a batch without a trajectory")
    return result.trajectory


def _reward(result: Result) -> float:
    if result.reward is None:
        raise InvalidMessage(f"job {result.lease.job_id} is in a batch without a reward")
    return result.reward
