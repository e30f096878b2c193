"""A whole trainer on one page: plain torch, one loss, and all that it needs of Rollyard.

.venv/bin/rollyard up                                       # serves the policy that is trained
.venv-llm/bin/python examples/minimal.py examples/arithmetic/policy
"""

import argparse
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import rollyard
from rollyard.rows import Row

GROUPS, GROUP_SIZE = 8, 8
SAMPLING = rollyard.Sampling(temperature=1.0, max_response_tokens=24)


def problems() -> Iterator[dict[str, str]]:
    """The dataset: rows without end. `data_source` names the environment that runs a row."""
    for a in itertools.cycle(range(10, 99)):
        yield {"data_source": "arithmetic", "question": f"{a}*{a + 1}", "answer": str(a * (a + 1))}


def loss_of(policy: PreTrainedModel, batch: rollyard.Batch) -> torch.Tensor:
    """PPO's clipped loss, Dr. GRPO's advantages; mean over sampled tokens. Sequences have T."""
    losses = []
    for group in batch.groups:
        rewards = torch.tensor([result.reward or 0.0 for result in group.results])  # [members]
        for result, advantage in zip(group.results, rewards - rewards.mean(), strict=True):
            assert result.trajectory is not None  # all in a batch have one
            for each in result.trajectory.sequences:  # one, unless the chat template splits it
                token_ids = torch.frombuffer(each.token_ids, dtype=torch.int32).long()  # [T]
                sampled = torch.frombuffer(each.loss_mask, dtype=torch.int8)[1:].bool()  # [T-1]
                behaviour = torch.frombuffer(each.logprobs, dtype=torch.float32)[1:]  # [T-1]
                logits = policy(token_ids[None, :-1]).logits[0] / SAMPLING.temperature
                logprobs = logits.log_softmax(-1).gather(-1, token_ids[1:, None])[:, 0]  # [T-1]
                ratio = (logprobs - behaviour)[sampled].exp()
                losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
    return torch.cat(losses).mean()


def train(
    client: rollyard.Client, rows: Iterable[Row], policy_dir: Path, checkpoints: Path, steps: int
) -> None:
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(policy_dir)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-4)
    version = client.weight_version() + 1
    run_id = f"minimal-{version}"
    with client.run(rows, run_id=run_id, group_size=GROUP_SIZE, sampling=SAMPLING) as run:
        run.update_weights(policy_dir.resolve(), version)  # whatever was served before
        run.request(GROUPS)
        for _ in range(steps):
            batch = run.rollout(GROUPS)
            run.request(GROUPS)  # sampled while the policy is trained on this one
            loss = loss_of(policy, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            version += 1
            checkpoint = checkpoints.resolve() / f"version-{version}"
            policy.save_pretrained(checkpoint)
            tokenizer.save_pretrained(checkpoint)
            run.update_weights(checkpoint, version)
            run.ack(batch)  # last: after a crash before this the same batch comes again
            rewards = [result.reward or 0.0 for group in batch.groups for result in group.results]
            print(f"version {version}: loss {loss:.3f}, solved {sum(rewards) / len(rewards):.2f}")
        run.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, help="what the LLM servers serve")
    parser.add_argument("--url", default="http://127.0.0.1:8005", help="the orchestrator")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--data", type=Path, help="a dataset to train on in place of the problems")
    flags = parser.parse_args()
    rows = itertools.cycle(rollyard.Dataset(flags.data)) if flags.data else problems()
    with rollyard.Client(flags.url) as client:
        train(client, rows, flags.policy, flags.checkpoints, flags.steps)
