"""What NeMo-RL's `grpo_train` asks of a rollout, in one page: it is no package of the registry.

The names, the shapes, and the order in which things are called are those of commit 7ea279ab; so is
how a Group is known, by the tokens of its prompt. `tests/real_nemo_rl` runs NeMo-RL's own.
"""

from collections import UserDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

Messages = list[dict[str, Any]]
PAD = 0


class BatchedDataDict(UserDict[str, Any]):
    """Fields of B samples: tensors [B, ...] and lists of B."""

    def repeat_interleave(self, times: int) -> "BatchedDataDict":
        return BatchedDataDict(
            {
                name: values.repeat_interleave(times, 0)
                if isinstance(values, torch.Tensor)
                else [dict(v) if isinstance(v, dict) else v for v in values for _ in range(times)]
                for name, values in self.items()
            }
        )


def run_multi_turn_rollout(*_: Any, **__: Any) -> Any:
    raise AssertionError("NeMo-RL's own rollout is called")


run_async_multi_turn_rollout = run_multi_turn_rollout


class Checkpoints:
    """Directories `step_1`, `step_2`, ... which are whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_latest_checkpoint_path(self) -> str | None:
        steps = [int(path.name.removeprefix("step_")) for path in self._directory.glob("step_*")]
        return str(self._directory / f"step_{max(steps)}") if steps else None

    def finalize_pending(self) -> None:
        pass

    def write(self, step: int, weights: dict[str, Any], dataloader: Any) -> None:
        unfinished = self._directory / f"tmp_step_{step}"
        unfinished.mkdir(parents=True, exist_ok=True)
        with (unfinished / "weights.pt").open("wb") as file:
            torch.save(weights, file)
        with (unfinished / "train_dataloader.pt").open("wb") as file:
            torch.save(dataloader.state_dict(), file)
        unfinished.rename(self._directory / f"step_{step}")


def grpo_train(
    policy: Any,
    policy_generation: Any,
    wrapped_dataloader: Iterable[BatchedDataDict],
    val_dataloader: Iterable[BatchedDataDict] | None,
    tokenizer: Any,
    checkpointer: Checkpoints,
    total_steps: int,
    master_config: Any,
) -> None:
    """`policy` trains on the data of a step: input_ids, token_mask, generation_logprobs,
    prev_logprobs, advantages [B, T], sample_mask [B], and what the rollout has added."""
    given = {
        "policy_generation": policy_generation,
        "tokenizer": tokenizer,
        "task_to_env": {},
        "max_seq_len": 1024,
        "greedy": False,
    }
    for batch in wrapped_dataloader:
        if total_steps >= master_config.grpo.max_num_steps:
            return
        repeated = batch.repeat_interleave(master_config.grpo.num_generations_per_prompt)
        flattened(repeated["message_log"])
        repeated, metrics = run_multi_turn_rollout(input_batch=repeated, **given)
        assert metrics["mean_gen_tokens_per_sample"] > 0
        data = flattened(repeated["message_log"])
        prompts = first_messages(repeated["message_log"], repeated["length"].tolist())
        mask = data["token_mask"] * repeated["loss_multiplier"][:, None]
        advantages = advantages_of(flattened(prompts)["input_ids"], repeated["total_reward"])
        data["advantages"] = advantages[:, None].expand_as(mask)
        data["sample_mask"] = repeated["loss_multiplier"]
        data["rewards"] = repeated["total_reward"]
        data["prev_logprobs"] = policy.get_logprobs(BatchedDataDict(data))["logprobs"]
        policy.train(data, total_steps)
        total_steps += 1
        for validated in val_dataloader or ():
            policy.validated(*validate(validated, master_config, given))
        checkpointer.write(total_steps, policy.state_dict(), wrapped_dataloader)


def validate(
    batch: BatchedDataDict, master_config: Any, given: dict[str, Any]
) -> tuple[list[float], float]:
    """Rewards of a batch, and the mean length of its responses."""
    repeated = batch.repeat_interleave(master_config.grpo.val_num_generations_per_prompt)
    validated, metrics = run_multi_turn_rollout(input_batch=repeated, **given)
    assert all(log[0]["role"] == "user" for log in validated["message_log"])
    return validated["total_reward"].tolist(), metrics["mean_gen_tokens_per_sample"]


def flattened(logs: list[Messages]) -> dict[str, torch.Tensor]:
    """Tensors of all messages one after the other, padded at the right."""
    for message in (message for log in logs for message in log):
        token_ids = message["token_ids"]
        assert token_ids.dtype == torch.int64
        sampled = message["role"] == "assistant" and "generation_logprobs" in message
        message["token_mask"] = torch.full_like(token_ids, int(sampled))
        message.setdefault("generation_logprobs", torch.zeros(len(token_ids)))
        message.setdefault("weight_versions", torch.zeros_like(token_ids))
        assert len(message["generation_logprobs"]) == len(token_ids)
    names = ("token_ids", "token_mask", "generation_logprobs", "weight_versions")
    rows = {name: [torch.cat([m[name] for m in log]) for log in logs] for name in names}
    laid = {
        name: torch.nn.utils.rnn.pad_sequence(each, batch_first=True, padding_value=PAD)
        for name, each in rows.items()
    }
    lengths = torch.tensor([len(each) for each in rows["token_ids"]])
    return {**laid, "input_ids": laid["token_ids"], "input_lengths": lengths}


def first_messages(logs: list[Messages], lengths: list[int]) -> list[Messages]:
    """The messages of each log up to so many tokens."""
    return [list(_until(log, length)) for log, length in zip(logs, lengths, strict=True)]


def _until(log: Messages, length: int) -> Iterator[dict[str, Any]]:
    for message in log:
        if length <= 0:
            return
        yield message
        length -= len(message["token_ids"])


def advantages_of(prompt_ids: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """GRPO's, of those with the same prompt."""
    advantages = torch.zeros_like(rewards)
    for prompt in prompt_ids.unique(dim=0):
        same = (prompt_ids == prompt).all(1)
        advantages[same] = (rewards[same] - rewards[same].mean()) / (rewards[same].std() + 1e-6)
    return advantages
