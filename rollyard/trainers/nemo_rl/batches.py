"""The fields of NeMo-RL's batches, and the metrics of its rollouts. B is the number of
trajectories."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from rollyard.messages import Batch
from rollyard.trainers.completions import PromptCompletion
from rollyard.trainers.nemo_rl.message_logs import first_lengths, message_log
from rollyard.trainers.sequences import NOT_SAMPLED

PLACEHOLDER = "rollyard-placeholder"
"""`task_name` of data that stand for whatever Rollyard samples next."""
Fields = dict[str, Any]


def placeholders(groups: int) -> Fields:
    """What a dataloader gives where the rows are not known yet. Each has other tokens."""
    torch: Any = import_module("torch")
    logs = [
        [{"role": "user", "content": "", "token_ids": torch.tensor([number])}]
        for number in range(groups)
    ]
    return {
        "message_log": logs,
        "length": torch.ones(groups, dtype=torch.int64),
        "loss_multiplier": torch.ones(groups),
        "extra_env_info": [{} for _ in logs],
        "task_name": [PLACEHOLDER] * groups,
        "idx": list(range(groups)),
        "stop_strings": [None] * groups,
    }


def rollout_fields(
    batch: Batch, each: Sequence[PromptCompletion], tokenizer: Any, *, grouped: bool
) -> Fields:
    """What a rollout adds to a batch of data, or replaces there. `each` are the Batch's
    completions, and `grouped` says that NeMo-RL is to find its Groups."""
    torch: Any = import_module("torch")
    rows = [group.prompt.instance for group in batch.groups for _ in group.results]
    lengths = [len(one.prompt_ids) for one in each]
    if grouped:
        lengths = first_lengths(each, tokenizer.pad_token_id)
    oldest = torch.tensor([_oldest(one, batch.report.weight_version) for one in each])
    return {
        "message_log": [
            message_log(one, first, tokenizer.decode)
            for one, first in zip(each, lengths, strict=True)
        ],
        "length": torch.tensor(lengths),
        "loss_multiplier": torch.tensor([float(any(one.mask)) for one in each]),
        "extra_env_info": [dict(row) for row in rows],
        "task_name": [row["data_source"] for row in rows],
        "idx": [one.group for one in each],
        "total_reward": torch.tensor([one.reward for one in each], dtype=torch.float32),
        "truncated": torch.tensor([one.truncated for one in each]),
        "weight_version": oldest,
        "trajectory_age": batch.report.weight_version - oldest,
    }


def rollout_metrics(batch: Batch, each: Sequence[PromptCompletion]) -> dict[str, float]:
    """Under NeMo-RL's names, then under those of `Batch.metrics`."""
    results = [result for group in batch.groups for result in group.results]
    turns = np.array([len(r.trajectory.turns) if r.trajectory else 0 for r in results])
    sampled = np.array([sum(one.mask) for one in each])
    observed = np.array([len(one.mask) for one in each]) - sampled
    ages = [batch.report.weight_version - _oldest(one, batch.report.weight_version) for one in each]
    truncated = float(np.mean([one.truncated for one in each]))
    return {
        "total_turns": int(turns.sum()),
        "avg_turns_per_sample": float(turns.mean()),
        "max_turns_per_sample": int(turns.max()),
        "natural_termination_rate": 1.0 - truncated,
        "truncation_rate": truncated,
        "mean_total_tokens_per_sample": float((sampled + observed).mean()),
        "mean_gen_tokens_per_sample": float(sampled.mean()),
        "max_gen_tokens_per_sample": float(sampled.max()),
        "mean_env_tokens_per_sample": float(observed.mean()),
        "mean_trajectory_age": float(np.mean(ages)),
        "max_trajectory_age": max(ages),
        **batch.metrics(),
    }


def old_logprobs(each: Sequence[PromptCompletion], shape: tuple[int, int]) -> Any:
    """Logprobs of those that sampled, float32 of `shape` [B, T], padded at the right with 0."""
    torch: Any = import_module("torch")
    laid = torch.zeros(shape, dtype=torch.float32)
    for row, one in zip(laid, each, strict=True):
        begin = len(one.prompt_ids)
        row[begin : begin + len(one.logprobs)] = torch.tensor(one.logprobs)
    return laid


def _oldest(one: PromptCompletion, present: int) -> int:
    """The oldest weight version of its sampled tokens: the present one if it has none."""
    sampled = [version for version in one.weight_versions if version != NOT_SAMPLED]
    return min(sampled, default=present)
