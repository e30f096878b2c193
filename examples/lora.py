"""A LoRA adapter of PEFT's, trained and published by itself: minimal.py, in Rollyard's arrays.

.venv/bin/rollyard up -- --enable-lora --max-lora-rank 16   # serves the model that is adapted
.venv-trl/bin/python examples/lora.py examples/arithmetic/policy
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

import rollyard
from rollyard.trainers.advantages import grpo
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.padding import padded
from rollyard.trainers.sequences import rewards, training_sequences
from rollyard.trainers.steps import Steps

GROUPS, GROUP_SIZE, EVALUATED = 8, 8, 64
SAMPLING = rollyard.Sampling(temperature=1.0, max_response_tokens=24)
LORA = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def problems() -> Iterator[dict[str, str]]:
    """The dataset: rows without end. `data_source` names the environment that runs a row."""
    for a in itertools.cycle(range(10, 99)):
        yield {"data_source": "arithmetic", "question": f"{a}*{a + 1}", "answer": str(a * (a + 1))}


def loss_of(policy: PeftModel, batch: rollyard.Batch) -> torch.Tensor:
    """DAPO's loss: the mean over sampled tokens. S sequences are padded to T tokens."""
    rows = padded(training_sequences(batch), pad_token_id=0)
    token_ids = torch.from_numpy(rows.token_ids)  # [S, T]
    sampled = torch.from_numpy(rows.loss_mask)[:, 1:]  # [S, T-1]
    behaviour = torch.from_numpy(rows.logprobs)[:, 1:]  # [S, T-1]
    advantages = torch.from_numpy(grpo(*rewards(batch))[rows.trajectories]).float()  # [S]
    advantage = advantages[:, None].expand_as(behaviour)[sampled]
    logits = policy(token_ids[:, :-1]).logits / SAMPLING.temperature
    logprobs = logits.log_softmax(-1).gather(-1, token_ids[:, 1:, None])[..., 0]  # [S, T-1]
    ratio = (logprobs - behaviour)[sampled].exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).mean()


def train(client: rollyard.Client, policy_dir: Path, checkpoints: Path, steps: int) -> None:
    model = AutoModelForCausalLM.from_pretrained(policy_dir.resolve(), dtype=torch.float32)
    policy = get_peft_model(model, LORA)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    run_id = f"lora-{client.weight_version() + 1}"
    asked = list(itertools.islice(problems(), EVALUATED))
    with client.run(problems(), run_id=run_id, group_size=GROUP_SIZE, sampling=SAMPLING) as run:

        def save(path: Path) -> None:  # the adapter alone: adapter_model.safetensors
            policy.save_pretrained(str(path))

        def solved(when: str) -> float:
            batch = evaluate(client, asked, run.settings, run_id=f"{run_id}-{when}")
            return float(rewards(batch)[0].mean())

        feed = Steps(run, GROUPS, checkpoints)
        feed.begin(save)
        print(f"before: solved {solved('before'):.2f}")
        for _ in range(steps):
            loss = loss_of(policy, feed.next())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            feed.trained(save)  # published
            print(f"version {feed.version}: loss {loss:.3f}")
        feed.end()
        run.finish()
        print(f"after: solved {solved('after'):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, help="what the LLM servers serve")
    parser.add_argument("--url", default="http://127.0.0.1:8005", help="the orchestrator")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=12)
    flags = parser.parse_args()
    with rollyard.Client(flags.url) as client:
        train(client, flags.policy, flags.checkpoints, flags.steps)
