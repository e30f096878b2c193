"""DAPO in plain torch (arXiv 2503.14476): from a Batch to a loss.

- Section 3.1, clip higher: the importance ratio is clipped to [1 - 0.2, 1 + 0.28], which leaves
  more room to raise an unlikely token than to lower a likely one.
- Section 3.2, dynamic sampling, is Rollyard's part: every Group of a Batch has unequal rewards.
- Section 3.3, token-level loss: the mean over all sampled tokens of the batch, so that a token
  counts the same in a long response and in a short one.
- Only sampled tokens are trained: prompts and what tools said have a loss mask of 0.

Section 3.4 shapes the rewards of overlong responses; responses here are too short to need it.

B is the number of sequences, T the length of the longest one: a trajectory is one, unless the chat
template splits it. All tensors are padded at the right, which a causal model never sees, so no
attention mask is needed.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Group, Result, Sequence, Trajectory

NOT_SAMPLED = -1


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """A Batch as tensors. Rows are sequences; those of one Group are neighbours."""

    token_ids: torch.Tensor
    """[B, T] int64."""
    loss_mask: torch.Tensor
    """[B, T] bool: true where the policy sampled the token."""
    behaviour_logprobs: torch.Tensor
    """[B, T] float32: logprobs of the sampled tokens in the distribution that sampled them."""
    weight_versions: torch.Tensor
    """[B, T] int64: version of the weights that sampled the token, else `NOT_SAMPLED`."""
    advantages: torch.Tensor
    """[B] float32."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def rows(self, index: torch.Tensor) -> "TrainingBatch":
        """The sequences numbered `index`, [rows] int64."""
        return TrainingBatch(
            self.token_ids[index],
            self.loss_mask[index],
            self.behaviour_logprobs[index],
            self.weight_versions[index],
            self.advantages[index],
        )


def to_tensors(batch: Batch, *, pad_token_id: int) -> TrainingBatch:
    """Pad the sequences of `batch` to one length and give each its trajectory's advantage."""
    trajectories = [_trajectory(result) for group in batch.groups for result in group.results]
    sequences = [sequence for each in trajectories for sequence in each.sequences]
    counts = torch.tensor([len(each.sequences) for each in trajectories])
    advantages = torch.cat([group_advantages(group_rewards(g)) for g in batch.groups])
    return TrainingBatch(
        token_ids=_pad([_tensor(s.token_ids, torch.int32).long() for s in sequences], pad_token_id),
        loss_mask=_pad([_tensor(s.loss_mask, torch.int8) for s in sequences], 0).bool(),
        behaviour_logprobs=_pad([_tensor(s.logprobs, torch.float32) for s in sequences], 0.0),
        weight_versions=_pad([token_versions(s) for s in sequences], NOT_SAMPLED),
        advantages=advantages.repeat_interleave(counts),
    )


def group_rewards(group: Group) -> torch.Tensor:
    """Rewards of the Group's members, [members] float32."""
    return torch.tensor([_reward(result) for result in group.results])


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """How far each member's reward lies from its Group's mean, in standard deviations. [members]

    All zero where the rewards are all equal: such a Group teaches nothing.
    """
    if rewards.min() == rewards.max():  # not by the deviation, which rounding makes non-zero
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / rewards.std(correction=0)


def taken_logprobs(
    model: PreTrainedModel, token_ids: torch.Tensor, *, temperature: float = 1.0
) -> torch.Tensor:
    """The logprob of each token given those before it; 0.0 for the first. [B, T] -> [B, T]

    `temperature` is the one they were sampled at: it makes this the distribution they came from.
    """
    logits = model(token_ids, use_cache=False).logits[:, :-1].float() / temperature
    taken = logits.log_softmax(-1).gather(-1, token_ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(taken, (1, 0))


def dapo_loss(
    logprobs: torch.Tensor, batch: TrainingBatch, *, clip_low: float = 0.2, clip_high: float = 0.28
) -> torch.Tensor:
    """The loss to minimise. `logprobs` is [B, T], under the weights being trained; -> scalar."""
    mask = batch.loss_mask
    advantages = batch.advantages[:, None].expand_as(logprobs)[mask]
    ratio = (logprobs[mask] - batch.behaviour_logprobs[mask]).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def largest_gap(logprobs: torch.Tensor, batch: TrainingBatch, version: int) -> float:
    """The largest |trainer - rollout| logprob among tokens sampled under `version`.

    A response that older weights began counts from the first token of `version` on: a weight
    update leaves the LLM servers none of the older weights' keys and values.
    """
    current = batch.weight_versions == version
    gaps = (logprobs - batch.behaviour_logprobs)[current].abs()
    return gaps.max().item() if len(gaps) else 0.0


def token_versions(sequence: Sequence) -> torch.Tensor:
    """[tokens] int64, see `TrainingBatch.weight_versions`."""
    versions = torch.full((len(sequence.token_ids),), NOT_SAMPLED)
    for span in sequence.weight_spans:
        versions[span.start : span.end] = span.version
    return versions


def _tensor(values: "array[Any]", dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(values, dtype=dtype)


def _pad(rows: Iterable[torch.Tensor], value: float) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)


def _trajectory(result: Result) -> Trajectory:
    if result.trajectory is None:
        raise InvalidMessage(f"job {result.lease.job_id} is in a batch without a trajectory")
    return result.trajectory


def _reward(result: Result) -> float:
    if result.reward is None:
        raise InvalidMessage(f"job {result.lease.job_id} is in a batch without a reward")
    return result.reward
