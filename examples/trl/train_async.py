"""TRL's AsyncGRPOTrainer on what Rollyard samples: the arithmetic policy learns to use its tool.

.venv/bin/rollyard up                                       # serves the policy that is trained
.venv-trl/bin/python examples/trl/train_async.py examples/arithmetic/policy
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from trl.experimental.async_grpo import AsyncGRPOConfig
from without_gpu import without_gpu

import rollyard
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.sequences import rewards
from rollyard.trainers.trl import AsyncRollouts, async_grpo_trainer

GROUPS, GROUP_SIZE = 8, 8
EVALUATED = 89
SAMPLING = rollyard.Sampling(temperature=1.0, max_response_tokens=24)


def problems() -> Iterator[dict[str, str]]:
    """The dataset: rows without end. `data_source` names the environment that runs a row."""
    for a in itertools.cycle(range(10, 99)):
        yield {"data_source": "arithmetic", "question": f"{a}*{a + 1}", "answer": str(a * (a + 1))}


def config(output: Path, steps: int) -> AsyncGRPOConfig:
    return AsyncGRPOConfig(
        output_dir=str(output),
        max_steps=steps,
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        token_budget=0,  # a step is on a batch, whatever its tokens
        num_generations=GROUP_SIZE,
        temperature=SAMPLING.temperature,
        epsilon=0.2,
        epsilon_high=0.28,
        learning_rate=3e-4,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        gradient_checkpointing=False,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path, help="what the LLM servers serve")
    parser.add_argument("--url", default="http://127.0.0.1:8005", help="the orchestrator")
    parser.add_argument("--output", type=Path, default=Path("trl-output"))
    parser.add_argument("--run-id", default="trl-async")
    parser.add_argument("--steps", type=int, default=20)
    flags = parser.parse_args()
    settings = config(flags.output, flags.steps)
    asked = list(itertools.islice(problems(), EVALUATED))
    with (
        rollyard.Client(flags.url) as client,
        client.run(
            problems(), run_id=flags.run_id, group_size=GROUP_SIZE, sampling=SAMPLING
        ) as run,
    ):

        def solved(when: str) -> float:
            batch = evaluate(client, asked, run.settings, run_id=f"{flags.run_id}-{when}")
            return float(rewards(batch)[0].mean())

        rollouts = AsyncRollouts(run, flags.output / "published")
        with without_gpu():
            trainer = async_grpo_trainer()(
                model=str(flags.policy), args=settings, **rollouts.arguments(settings)
            )
        before = solved("before")
        rollouts.train(trainer)
        print(json.dumps({"before": before, "after": solved("after")}))


if __name__ == "__main__":
    main()
