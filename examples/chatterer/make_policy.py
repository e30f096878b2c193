"""Make a tiny policy that chatters: whatever it is told, it calls a tool, says a word, or writes
nonsense. It learns this from the demo's policy in two minutes.

    .venv-llm/bin/python examples/chatterer/make_policy.py examples/arithmetic/policy DIRECTORY

Nothing is solved with it but by chance. So every agent and every environment gets several turns of
it, among them calls that nobody can read, and rewards that differ within a Group.
"""

import copy
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Cache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

STEPS = 700
TRAINED_TOKENS = 384
"""Tokens of a step, behind others that it only reads."""
STEPS_A_PREFIX = 7
MAX_PREFIX_TOKENS = 12_288
"""Agents begin with thousands of tokens, since each byte is one."""
CONTEXT_TOKENS = 32_768
NOT_TRAINED = -100
TOLD = "".join(path.read_text() for path in sorted(Path(__file__).parents[2].glob("docs/*.md")))

Say = Callable[[random.Random], str]


def call(name: str, **arguments: object) -> str:
    written = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{written}\n</tool_call>"


def command(draws: random.Random) -> str:
    return call("bash", command=draws.choice(["echo 1 > answer.txt", "echo 2 > answer.txt"]))


def submission(draws: random.Random) -> str:
    return call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


def addition(draws: random.Random) -> str:
    return call("increment_counter", count=draws.choice([1, 2]))


def word(draws: random.Random) -> str:
    return draws.choice(["1", "2", "3", "right", "down", "It is done."])


def answer(draws: random.Random) -> str:
    return draws.choice(["<answer>1</answer>", "<answer>2</answer>"])


def torn(draws: random.Random) -> str:
    said = command(draws)
    return said[: draws.randrange(12, len(said))]


SAYS: dict[Say, int] = {command: 10, submission: 2, addition: 4, word: 5, answer: 4, torn: 2}
"""What it says, and how often."""


def told(tokenizer: PreTrainedTokenizerBase, draws: random.Random, tokens: int) -> list[int]:
    """So many tokens of what anybody might tell it."""
    start = draws.randrange(len(TOLD))
    ids: list[int] = tokenizer.encode((TOLD + TOLD)[start : start + tokens])
    return ids[:tokens]


def conversation(
    tokenizer: PreTrainedTokenizerBase, draws: random.Random
) -> tuple[list[int], list[int]]:
    """Token ids and labels; labels are `NOT_TRAINED` outside responses."""
    opening = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n")
    tokens: list[int] = []
    labels: list[int] = []
    while len(tokens) < TRAINED_TOKENS:
        (say,) = draws.choices(list(SAYS), list(SAYS.values()))
        said = [*tokenizer.encode(say(draws)), tokenizer.eos_token_id]
        heard = told(tokenizer, draws, draws.randrange(40))
        tokens += opening + said + heard
        labels += [NOT_TRAINED] * len(opening) + said + [NOT_TRAINED] * len(heard)
    return tokens[:TRAINED_TOKENS], labels[:TRAINED_TOKENS]


@torch.no_grad()
def read(policy: PreTrainedModel, prefix: list[int]) -> Cache:
    """What the policy keeps of a prefix."""
    cache: Cache = policy.model(torch.tensor([prefix]), use_cache=True).past_key_values
    return cache


def train(policy: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Train the policy in place. It reads prefixes without learning from them: to say the same
    behind long ones as behind short ones is all that they teach."""
    draws = random.Random(0)
    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS, pct_start=0.1)
    for step in range(STEPS):
        if step % STEPS_A_PREFIX == 0:
            length = int(MAX_PREFIX_TOKENS ** draws.random())
            prefix = read(policy, told(tokenizer, draws, length))
        ids, labels = torch.tensor(conversation(tokenizer, draws))  # [tokens] each
        logits = policy(ids[None], past_key_values=copy.deepcopy(prefix)).logits[0, :-1]
        loss = cross_entropy(logits, labels[1:], ignore_index=NOT_TRAINED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 25 == 24:
            print(f"step {step + 1}/{STEPS}: loss {loss.item():.2f}", flush=True)


def make_policy(start: Path, directory: Path) -> None:
    """Train what is in `start`, and write it to `directory`, which exists only if it is whole."""
    torch.set_num_threads(1)  # more only slow so small a policy down
    policy = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    policy.config.max_position_embeddings = CONTEXT_TOKENS
    tokenizer = AutoTokenizer.from_pretrained(start)
    train(policy, tokenizer)
    unfinished = directory.with_suffix(".unfinished")
    policy.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(directory)


if __name__ == "__main__":
    make_policy(Path(sys.argv[1]), Path(sys.argv[2]).absolute())
