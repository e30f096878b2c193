"""Prompt and completion: how most trainers see a trajectory.

The prompt is all before the policy's first token, the completion all from there to its last one,
with what tools said in between masked. What the chat template adds behind the last token is left
out: it would hide from a trainer that the policy ended its turn.
"""

from dataclasses import dataclass

from rollyard.messages import Batch
from rollyard.trainers.sequences import TrainingSequence, training_sequences


@dataclass(frozen=True, slots=True)
class PromptCompletion:
    """C is the number of the completion's tokens, at least one."""

    prompt_ids: list[int]
    completion_ids: list[int]
    """[C]"""
    logprobs: list[float]
    """[C]: of sampled tokens in the distribution that sampled them, 0.0 elsewhere."""
    mask: list[int]
    """[C]: 1 where the policy sampled the token. All 0 if it sampled nothing."""
    weight_versions: list[int]
    """[C]: of the weights that sampled the token, else `NOT_SAMPLED`."""
    reward: float
    group: int
    """Number of its Group in the Batch."""
    truncated: bool
    """True if a limit ended the trajectory, not the policy."""


def completions(batch: Batch) -> list[PromptCompletion]:
    """One of each trajectory, in the order of the Batch: the last sequence of one that its chat
    template splits. Raises as `training_sequences`."""
    last = {sequence.trajectory: sequence for sequence in training_sequences(batch)}
    return [completion_of(last[number]) for number in sorted(last)]


def completion_of(sequence: TrainingSequence) -> PromptCompletion:
    sampled = sequence.loss_mask.nonzero()[0]
    # Trainers divide by a completion's length: one without tokens has the prompt's last one.
    begin = min(sequence.prompt_length, len(sequence) - 1)
    end = int(sampled[-1]) + 1 if len(sampled) else begin + 1
    return PromptCompletion(
        prompt_ids=sequence.token_ids[:begin].tolist(),
        completion_ids=sequence.token_ids[begin:end].tolist(),
        logprobs=sequence.logprobs[begin:end].tolist(),
        mask=sequence.loss_mask[begin:end].astype(int).tolist(),
        weight_versions=sequence.weight_versions[begin:end].tolist(),
        reward=sequence.reward,
        group=sequence.group,
        truncated=sequence.truncated,
    )
