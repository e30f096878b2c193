"""What verl's agent loops store of a Batch: a record of each sequence for its TransferQueue (verl
0.9), or one DataProto of all trajectories (verl up to 0.8, and its trainer without `use_v1`).

The prompt is all before the policy's first token, the response all from there to its last one.
"""

import importlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollyard.messages import Batch, Result
from rollyard.trainers.completions import PromptCompletion, completion_of, completions
from rollyard.trainers.sequences import NOT_SAMPLED, training_sequences


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """One sequence."""

    key: str
    """`{uid}_{member}_{number of its sequence}`"""
    prompt: int
    """Number of the placeholder whose place it takes."""
    fields: dict[str, Any]
    """Arrays of its tokens, and what belongs to it as a whole."""
    tag: dict[str, Any]


def records(batch: Batch, uids: Sequence[str], *, step: int, version: int) -> list[StoredSequence]:
    """One of each sequence of the Batch. `uids` name its Groups, and `version` is that of the
    weights after verl's step `step`: verl counts weights by its steps."""
    found, first = [], dict[int, int]()
    sequences = Counter[int]()
    for sequence in training_sequences(batch):
        number = sequence.group
        member = sequence.trajectory - first.setdefault(number, sequence.trajectory)
        index = sequences[sequence.trajectory]
        sequences[sequence.trajectory] += 1
        completion = completion_of(sequence)
        tag = tag_of(completion, step, version)
        group = batch.groups[number]
        fields = {
            **token_fields(completion),
            "uid": uids[number],
            "session_id": member,
            "data_source": group.prompt.instance["data_source"],
            "num_turns": messages(group.results[member]),
            "extra_fields": {
                "min_global_steps": tag["min_global_steps"],
                "max_global_steps": tag["max_global_steps"],
                "reward_extra_info": {"truncated": float(completion.truncated)},
            },
        }
        found.append(StoredSequence(f"{uids[number]}_{member}_{index}", number, fields, tag))
    return found


def tag_of(completion: PromptCompletion, step: int, version: int) -> dict[str, Any]:
    lengths = len(completion.prompt_ids), len(completion.completion_ids)
    sampled = [each for each in completion.weight_versions if each != NOT_SAMPLED] or [version]
    return {
        "status": "success",
        "prompt_len": lengths[0],
        "response_len": lengths[1],
        "seq_len": sum(lengths),
        "global_steps": step + 1,
        "min_global_steps": max(0, step - version + min(sampled)),
        "max_global_steps": max(0, step - version + max(sampled)),
    }


def messages(result: Result) -> int:
    return 0 if result.trajectory is None else len(result.trajectory.messages)


def token_fields(completion: PromptCompletion) -> dict[str, NDArray[Any]]:
    """verl's names for a sequence's arrays, without padding."""
    prompt = np.array(completion.prompt_ids, np.int64)
    response = np.array(completion.completion_ids, np.int64)
    scores = np.zeros(len(response), np.float32)
    scores[-1] = completion.reward
    mask = np.array(completion.mask, np.int64)
    return {
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": np.array(completion.logprobs, np.float32),
        "rm_scores": scores,
        "input_ids": np.concatenate([prompt, response]),
        "position_ids": np.arange(len(prompt) + len(response)),
    }


def padded_fields(batch: Batch, *, pad_token_id: int) -> dict[str, NDArray[Any]]:
    """The fields of a DataProto: S trajectories, prompts of P tokens padded at the left, responses
    of R tokens at the right. One that its chat template splits is its last sequence alone: verl
    counts each row of a DataProto as a member of the Group."""
    rows = [token_fields(each) for each in completions(batch)]
    there = [np.ones_like(row["prompts"]) for row in rows]
    replied = [np.ones_like(row["responses"]) for row in rows]
    prompts = _laid([row["prompts"] for row in rows], pad_token_id, left=True)
    responses = _laid([row["responses"] for row in rows], pad_token_id)
    attention = np.concatenate([_laid(there, 0, left=True), _laid(replied, 0)], axis=1)
    return {
        "prompts": prompts,  # [S, P]
        "responses": responses,  # [S, R]
        "response_mask": _laid([row["response_mask"] for row in rows], 0),  # [S, R]
        "rollout_log_probs": _laid([row["rollout_log_probs"] for row in rows], 0.0),  # [S, R]
        "rm_scores": _laid([row["rm_scores"] for row in rows], 0.0),  # [S, R]
        "input_ids": np.concatenate([prompts, responses], axis=1),  # [S, P + R]
        "attention_mask": attention,  # [S, P + R]
        "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0),  # [S, P + R]
    }


def data_proto(batch: Batch, *, pad_token_id: int) -> Any:
    """A DataProto of the Batch: what `generate_sequences` returns to verl's older trainers. Its
    `meta_info` has the metrics."""
    from verl import DataProto

    arrays = padded_fields(batch, pad_token_id=pad_token_id)
    groups = [group for group in batch.groups for _ in group.results]
    uids = [group.group_id for group in groups]
    sources = [group.prompt.instance["data_source"] for group in groups]
    return DataProto.from_dict(
        tensors={name: tensor(array) for name, array in arrays.items()},
        non_tensors={"uid": _objects(uids), "data_source": _objects(sources)},
        meta_info={"timing": {}, "reward_extra_keys": [], "rollyard": batch.metrics()},
    )


def tensor(value: Any) -> Any:
    """An array as torch has it, without a copy; all else as it is."""
    torch = importlib.import_module("torch")  # which rollyard itself is installed without
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _laid(rows: Sequence[NDArray[Any]], padding: float, *, left: bool = False) -> NDArray[Any]:
    width = max(map(len, rows), default=0)
    laid = np.full((len(rows), width), padding, dtype=rows[0].dtype if rows else np.int64)
    for target, row in zip(laid, rows, strict=True):
        target[width - len(row) if left else 0 :][: len(row)] = row
    return laid


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
