"""Make the tiny policy that the demo trains: a few minutes of supervised learning from scratch.

The policy learns two habits, half of the time each: to call the tool and repeat what it says, and
to guess. So it solves about half of the problems, and reinforcement learning has to find out which
of the two habits is the good one.

    python examples/arithmetic/supervised_start.py --output DIR
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from problems import Row, held_out_rows, train_rows
from sampler import measure
from tokenizer import byte_tokenizer, save_tokenizer
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

NOT_TRAINED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedConfig:
    steps: int = 1500
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    tool_share: float = 0.5
    """Share of the demonstrations that call the tool."""
    seed: int = 0


def new_policy(tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    """A randomly initialised Qwen3 of 0.86 million parameters.

    The embeddings are untied: an LLM server that reloads weights in place may keep the old output
    head of a tied model, and would then sample from a policy that nobody trained.
    """
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    policy = Qwen3ForCausalLM(config)
    # Nothing but the ends of a response: an LLM server takes sampling defaults from this file.
    policy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return policy


def demonstration(row: Row, draws: random.Random, tool_share: float) -> list[dict[str, str]]:
    """A conversation about `row` that uses the tool and is right, or guesses and is wrong."""
    question = {"role": "user", "content": row["question"]}
    if draws.random() >= tool_share:
        return [question, {"role": "assistant", "content": _guess(int(row["answer"]), draws)}]
    return [
        question,
        {"role": "assistant", "content": f"<tool_call>{row['question']}</tool_call>"},
        {"role": "tool", "content": row["answer"]},
        {"role": "assistant", "content": row["answer"]},
    ]


def _guess(answer: int, draws: random.Random) -> str:
    """A number of the right size that is not the answer."""
    guess = answer
    while guess == answer:
        guess = round(answer * draws.uniform(0.8, 1.2))
    return str(guess)


def encode(
    conversations: Sequence[Sequence[dict[str, str]]], tokenizer: PreTrainedTokenizerBase
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, both [batch, tokens]; labels are `NOT_TRAINED` outside responses."""
    texts = tokenizer.apply_chat_template(list(conversations), tokenize=False)
    ids = tokenizer(
        texts, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt"
    ).input_ids
    opening = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    windows = ids.unfold(1, len(opening), 1)
    opened = (windows == torch.tensor(opening)).all(-1).nonzero()
    labels = torch.full_like(ids, NOT_TRAINED)
    for sequence, position in opened.tolist():
        start = position + len(opening)
        length = (ids[sequence, start:] == tokenizer.eos_token_id).nonzero()[0].item() + 1
        labels[sequence, start : start + length] = ids[sequence, start : start + length]
    return ids, labels


def train(
    policy: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, config: SupervisedConfig
) -> None:
    """Train `policy` in place on fresh demonstrations of the training problems."""
    draws = random.Random(config.seed)
    rows = train_rows()
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=config.learning_rate,
        total_steps=config.steps,
        pct_start=config.warmup_steps / config.steps,
    )
    started = time.monotonic()
    for step in range(1, config.steps + 1):
        batch = [
            demonstration(row, draws, config.tool_share)
            for row in draws.sample(rows, config.batch_size)
        ]
        ids, labels = encode(batch, tokenizer)
        logits = policy(ids).logits[:, :-1]
        loss = cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=NOT_TRAINED
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            seconds = time.monotonic() - started
            print(
                f"step {step}/{config.steps}: loss {loss.item():.4f}, {seconds:.0f} s", flush=True
            )


def main() -> None:
    defaults = SupervisedConfig()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="directory for the policy")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    arguments = parser.parse_args()
    config = SupervisedConfig(steps=arguments.steps, seed=arguments.seed)
    torch.set_num_threads(2)
    torch.manual_seed(config.seed)
    tokenizer = byte_tokenizer()
    policy = new_policy(tokenizer)
    train(policy, tokenizer, config)
    policy.save_pretrained(arguments.output)
    save_tokenizer(arguments.output)
    generator = torch.Generator().manual_seed(config.seed)
    # Five tries a problem, so that the measured rate is good to about 0.015.
    measured = measure(policy.eval(), tokenizer, held_out_rows() * 5, generator)
    print(
        f"held-out pass rate {measured.pass_rate:.3f}, tool called {measured.tool_rate:.3f}, "
        f"right when called {measured.tool_accuracy:.3f} ({measured.problems} samples)"
    )


if __name__ == "__main__":
    main()
